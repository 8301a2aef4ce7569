"""The fixture that `tests/cli` imports from here."""

from tests.learned_references import compile_quickly as compile_quickly
