"""Small models in folders, as transformers saves them, and the command line run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from multihead.cli import main

WORDS = "the a cat dog sat on mat and ran ; , . to of who saw house tree old new said it was"
DOCUMENTS = [
    "the cat sat on the mat .",
    "the old dog ran to the house and the new dog ran to the tree .",
    "who saw the cat ? the dog saw the cat .",
    "a tree , a house , a tree , a house .",
    "it was the dog who said it .",
    "the cat and the dog sat on the mat and the cat ran .",
    "it was old .",
]


def tokenizer() -> object:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made = Tokenizer(WordLevel({w: i for i, w in enumerate([*special, *WORDS.split()])}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


@dataclass(frozen=True)
class Folders:
    """Models and texts that commands are given."""

    gpt2: Path
    other: Path
    """the same with other weights"""
    bare: Path
    """without a tokenizer"""
    corpus: Path
    """a document a line"""


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    from transformers import GPT2Config, GPT2LMHeadModel

    root = tmp_path_factory.mktemp("given")
    config = GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=31, n_positions=37, initializer_range=0.3)
    for seed, name in enumerate(("gpt2", "other", "bare")):
        torch.manual_seed(seed)
        GPT2LMHeadModel(config).save_pretrained(root / name)
        if name != "bare":
            tokenizer().save_pretrained(root / name)  # type: ignore[attr-defined]
    (root / "corpus.txt").write_text("\n".join(DOCUMENTS) + "\n")
    (root / "ids.json").write_text(json.dumps([[5, 6, 7, 5, 6], [8, 9], [4, 4, 4, 30]]))
    return Folders(root / "gpt2", root / "other", root / "bare", root / "corpus.txt")


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def multihead(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`multihead(words)`: what the command wrote and gave back."""

    def run(*words: object) -> Said:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:  # argparse
            code = int(left.code or 0)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Said(code, said.out, said.err)

    return run
