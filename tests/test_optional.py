"""Missing optional packages: one message that names the caller, the package and the extra."""

from __future__ import annotations

import sys

import pytest

from bisimetric._optional import import_optional
from bisimetric.errors import InputError


def test_an_installed_package_is_returned() -> None:
    assert import_optional("json.decoder", "demo", "learn") is sys.modules["json.decoder"]


@pytest.mark.parametrize("package", ["no_such_package", "no_such_package.part"])
def test_a_missing_package_names_its_extra(package: str) -> None:
    with pytest.raises(InputError) as caught:
        import_optional(package, "learned", "learn")
    assert str(caught.value) == (
        "learned: no_such_package is not installed; pip install 'bisimetric[learn]'."
    )


def test_a_missing_package_of_another_distribution_names_it() -> None:
    with pytest.raises(InputError, match=r"; pip install bisimetric-atari\.$"):
        import_optional("no_such_package", "games", None, "bisimetric-atari")


def test_errors_of_this_project_pass() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_optional("bisimetric.no_such_module", "demo", "learn")
    with pytest.raises(ModuleNotFoundError):
        import_optional("bisimetric_atari.no_such_module", "games", None, "bisimetric-atari")
