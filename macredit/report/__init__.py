"""Reports: what was played, what each agent is worth under each method, what it cost, and how sure it is."""

from macredit.report.report import MethodResult, Report
from macredit.report.table import AgentRow, agent_table, exact_index, mean_interval

__all__ = ["AgentRow", "MethodResult", "Report", "agent_table", "exact_index", "mean_interval"]
