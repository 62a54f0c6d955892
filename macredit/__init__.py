"""Who in the team earned the reward? Train, measure and compare teams of LLM agents."""
