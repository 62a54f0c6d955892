"""Learners: training rows, losses in closed form, one learner a policy. Importing this never imports torch."""

from macredit.learn.batch import TrainRow, imitation_rows, train_rows
from macredit.learn.learner import Learner, LearnerConfig, Objective, State, Trainable

__all__ = ["Learner", "LearnerConfig", "Objective", "State", "TrainRow", "Trainable", "imitation_rows", "train_rows"]
