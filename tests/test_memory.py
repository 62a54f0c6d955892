"""Memory stays flat while a run goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import json, sys
from pathlib import Path
from macredit.cli import world_of
from macredit.config import MethodConfig, RunConfig, TrainConfig
from macredit.train import train

class Memory:
    id, taken = "", []
    def log(self, numbers, step):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.taken.append((step, pages * 4096 / 2**20))
    def close(self, failed):
        Path(sys.argv[1], "memory.json").write_text(json.dumps(self.taken))

policies = {"*": {"kind": "hf", "model": "tiny", "engine": "copy", "max_tokens": 2, "lora": {"rank": 4}}}
t = TrainConfig(steps=200, tasks=2, group=4, evaluate_tasks=0, save_every=50, staleness=1)
config = RunConfig({"name": "coalition_v0", "preset": "glove"}, policies, method=MethodConfig("sharp"), train=t)
train(world_of(config), config, Path(sys.argv[1]), trackers={"memory": lambda *_: Memory()})
"""


@pytest.mark.slow
def test_two_hundred_steps_leave_memory_flat(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], check=True, env=env, capture_output=True)
    taken = dict(json.loads((tmp_path / "memory.json").read_text()))
    assert len(taken) == 200
    print(f"resident: {taken[50]:.1f} MB after 50 steps, {taken[200]:.1f} MB after 200")
    assert taken[200] - taken[50] < 10  # one state of the four adapters kept at each step would be 20 MB
