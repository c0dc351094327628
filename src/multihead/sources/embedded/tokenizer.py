"""Text to the ids of the embedded model and back: a word is a token.

>>> from multihead.sources.embedded.tokenizer import WordTokenizer
>>> tokenizer = WordTokenizer()
>>> ids = tokenizer("The keys that the man sees are new.")["input_ids"]
>>> tokenizer.convert_ids_to_tokens(ids)
['<s>', 'the', 'keys', 'that', 'the', 'man', 'sees', 'are', 'new', '.']
>>> tokenizer.decode(ids, skip_special_tokens=True)
'the keys that the man sees are new .'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from multihead.errors import MultiheadError
from multihead.sources.embedded import FOLDER

PAD, BEGIN, UNKNOWN = "<pad>", "<s>", "<unk>"
FILE, SAMPLE = "vocab.txt", "sample_texts.txt"
_WORD = re.compile(r"<\w+>|\w+|[^\w\s]")


class WordTokenizer:
    """The methods of a tokenizer of transformers that multihead calls. Unknown words become `<unk>`.

    Words in angle brackets are special tokens. Default: the words of the embedded model.
    """

    is_fast = False
    model_max_length = 72
    """tokens of the longest text that the embedded model was trained on; it reads longer ones less well"""

    def __init__(self, words: Sequence[str] | None = None) -> None:
        self.words = _read_words(FOLDER) if words is None else tuple(words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        missing = next((word for word in (PAD, BEGIN, UNKNOWN) if word not in self._ids), None)
        repeated = next((word for i, word in enumerate(self.words) if self._ids[word] != i), None)
        if missing or repeated:
            raise MultiheadError(
                f"the vocabulary lacks {missing}" if missing else f"the vocabulary has {repeated!r} twice",
                hint=f"one word a line, {PAD}, {BEGIN} and {UNKNOWN} among them",
            )
        self.pad_token_id, self.bos_token_id, self.unk_token_id = (self._ids[w] for w in (PAD, BEGIN, UNKNOWN))
        self.all_special_tokens = [word for word in self.words if word.startswith("<") and word.endswith(">")]
        self.all_special_ids = [self._ids[word] for word in self.all_special_tokens]

    def __len__(self) -> int:
        return len(self.words)

    def __call__(self, text: str, *, add_special_tokens: bool = True, **_: Any) -> dict[str, list[int]]:
        """`<s>` and the words; case is ignored where the vocabulary has only one form."""
        ids = [self._id(word) for word in _WORD.findall(text)]
        ids = [self.bos_token_id, *ids] if add_special_tokens else ids
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    def _id(self, word: str) -> int:
        forms = (word, word.lower(), word.capitalize())
        return next((self._ids[form] for form in forms if form in self._ids), self.unk_token_id)

    def get_vocab(self) -> dict[str, int]:
        return dict(self._ids)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.words[i] for i in ids]

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        return [self._ids.get(token, self.unk_token_id) for token in tokens]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False, **_: Any) -> str:
        dropped = set(self.all_special_ids) if skip_special_tokens else set[int]()
        return " ".join(self.words[i] for i in ids if i not in dropped)

    def sample_texts(self) -> list[str]:
        """40 documents of the model's language that it was not trained on, for when no text is passed."""
        return (FOLDER / SAMPLE).read_text(encoding="utf-8").splitlines()

    # ---- files --------------------------------------------------------------------------------

    def save_pretrained(self, folder: str | Path) -> None:
        (Path(folder) / FILE).write_text("\n".join(self.words) + "\n", encoding="utf-8")

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> WordTokenizer:
        return cls(_read_words(Path(folder)))


def _read_words(folder: Path) -> tuple[str, ...]:
    if not (folder / FILE).is_file():
        raise MultiheadError(f"there is no {FILE} in {folder}", hint="save_pretrained writes it")
    return tuple((folder / FILE).read_text(encoding="utf-8").split())
