"""The names that people type: all there, loaded late, and no others."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import multihead as mh


@pytest.mark.parametrize("name", mh.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mh, name) is not None
    assert name in dir(mh)


def test_the_lazy_table_and_all_agree() -> None:
    assert set(mh.__all__) == {*mh._HOME, "__version__"}


@pytest.mark.parametrize("name", ["mask", "position", "cache", "init", "interop"])
def test_modules_of_the_layer_are_public(name: str) -> None:
    assert getattr(mh, name) is importlib.import_module(f"multihead.layer.{name}")


def test_the_drop_in_is_one_changed_import() -> None:
    from multihead.dropin import MultiheadAttention
    from multihead.layer import dropin

    assert MultiheadAttention is dropin.MultiheadAttention is mh.dropin.MultiheadAttention


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="multi_head_attention"):
        _ = mh.multi_head_attention


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_imports_nothing_else() -> None:
    heavy = _run(
        "import sys, multihead; dir(multihead); heavy = {'torch', 'numpy', 'jaxtyping', 'transformers'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert heavy.strip() == "[]"


def test_from_import_loads_what_it_names() -> None:
    said = _run(
        "import sys; from multihead import mask, position, cache; "
        "print(mask.__name__, position.__name__, cache.__name__, 'transformers' in sys.modules)"
    )
    assert said.split() == [
        "multihead.layer.mask",
        "multihead.layer.position",
        "multihead.layer.cache",
        "False",
    ]
