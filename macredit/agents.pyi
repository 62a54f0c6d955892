from agents import *
