"""Their trainer, our credit: advantages of any method for trainers that macredit does not run.

Plain arrays from episodes, for any trainer (:mod:`macredit.integrations.arrays`):

>>> from macredit.integrations.arrays import advantages
>>> episodes = [
...     {"id": f"e{i}", "task": "t", "reward": reward, "turns": [
...         {"agent": "planner", "text": "Solve 3 + 4.", "token_ids": [5, 6, 7]},
...         {"agent": "solver", "text": answer, "token_ids": [8]}]}
...     for i, (reward, answer) in enumerate([(1.0, "7"), (0.0, "9")])]
>>> found = advantages(episodes, "rloo")  # or a JSON Lines file
>>> found.agent
('planner', 'solver', 'planner', 'solver')
>>> found.advantage
array([ 1.,  1., -1., -1.])
>>> found.rows_of("solver")
array([1, 3])
>>> advantage, mask = found.per_token()
>>> advantage[:2]
array([[1., 1., 1.],
       [1., 0., 0.]])
>>> mask[1]
array([ True, False, False])

verl (:mod:`macredit.integrations.verl`): ``algorithm.adv_estimator=macredit_dr_mas``, and so for every method.

TRL (:mod:`macredit.integrations.trl`): a rollout function that plays the whole team, with credit as the reward.

Everything here converts and calls :mod:`macredit.credit`; no formula lives here.
"""
