"""Benchmark of representation losses: how accurate are the metrics used in deep RL?

Each loss trains the same encoder alone, on MDPs whose metrics are known exactly, and its distance
is scored against its own fixed point, d^pi, d~ and MICo. `measure` trains and scores;
`format_table`, `write_tables` and `draw_figures` show its rows.
"""

from bisimetric.paper.loss_benchmark.benchmark import RESULTS, measure, select_setting
from bisimetric.paper.loss_benchmark.environments import ENVIRONMENTS, Environment
from bisimetric.paper.loss_benchmark.methods import METHODS, Method, NStepBatch, Readout
from bisimetric.paper.loss_benchmark.protocol import Protocol, Setting
from bisimetric.paper.loss_benchmark.report import (
    build_reference_table,
    build_settings_table,
    build_tables,
    draw_figures,
    format_table,
    summarise,
    tabulate,
    write_tables,
)
from bisimetric.paper.loss_benchmark.storage import Row, read_rows

__all__ = [
    "ENVIRONMENTS",
    "METHODS",
    "RESULTS",
    "Environment",
    "Method",
    "NStepBatch",
    "Protocol",
    "Readout",
    "Row",
    "Setting",
    "build_reference_table",
    "build_settings_table",
    "build_tables",
    "draw_figures",
    "format_table",
    "measure",
    "read_rows",
    "select_setting",
    "summarise",
    "tabulate",
    "write_tables",
]
