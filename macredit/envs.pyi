from envs import *
