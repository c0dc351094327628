"""Files of text in every format give the same documents; damaged ones say what is wrong with them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import multihead as mh
from multihead.corpus.text_files import ending, files_in, json_texts, lines, parquet_texts
from multihead.errors import SizeError

TEXTS = ["the cat sat", "ein schöner Tag", " spaces around ", "", "last"]
WANTED = ["the cat sat", "ein schöner Tag", "spaces around", "last"]


def written(folder: Path, column: str = "text") -> list[Path]:
    """The same texts in every format."""
    rows = "\n".join(json.dumps({"id": i, column: text}) for i, text in enumerate(TEXTS)).encode()
    plain, packed, zstd = folder / "a.jsonl", folder / "b.jsonl.gz", folder / "c.jsonl.zst"
    plain.write_bytes(rows)
    packed.write_bytes(gzip.compress(rows))
    with pyarrow.output_stream(str(zstd), compression="zstd") as file:
        file.write(rows)
    table = pyarrow.table({"id": list(range(len(TEXTS))), column: TEXTS})
    pyarrow.parquet.write_table(table, folder / "d.parquet", row_group_size=2)
    return [plain, packed, zstd, folder / "d.parquet"]


@pytest.mark.parametrize("column", ["text", "content"])
def test_all_formats_hold_the_same_texts(tmp_path: Path, column: str) -> None:
    files = written(tmp_path, column)
    assert files_in(tmp_path) == files
    for file in files:
        read = parquet_texts if ending(file) == ".parquet" else json_texts
        assert list(read(file, column)) == WANTED, file


def test_a_large_compressed_file_is_read_line_by_line(tmp_path: Path) -> None:
    made = [f"{i} " + "x" * (i % 97) + "\n" for i in range(20_011)]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("".join(made).encode()))
    with pyarrow.output_stream(str(tmp_path / "a.txt.zst"), compression="zstd") as file:
        file.write("".join(made).encode())
    assert list(lines(tmp_path / "a.txt.gz")) == made
    assert list(lines(tmp_path / "a.txt.zst")) == made


def test_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    plain, packed, zstd, parquet = written(tmp_path)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(mh.MultiheadError, match=r"b.jsonl.gz cannot be decompressed"):
        list(json_texts(packed))
    data = bytearray(zstd.read_bytes())
    data[:4] = b"none"
    zstd.write_bytes(data)
    with pytest.raises(mh.MultiheadError, match=r"c.jsonl.zst cannot be decompressed"):
        list(json_texts(zstd))
    with pytest.raises(mh.MultiheadError, match=r"d.parquet has no column 'body'.* id, text"):
        list(parquet_texts(parquet, "body"))
    with pytest.raises(mh.MultiheadError, match=r"'id' of .*d.parquet must hold text, got int"):
        list(parquet_texts(parquet, "id"))
    parquet.write_bytes(b"PAR1 no")
    with pytest.raises(mh.MultiheadError, match=r"d.parquet is not Parquet"):
        list(parquet_texts(parquet))
    with pytest.raises(mh.MultiheadError, match=r'a.jsonl line 1 has no "body"'):
        list(json_texts(plain, "body"))
    (tmp_path / "e.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(mh.MultiheadError, match=r"e.txt is not UTF-8 text"):
        list(lines(tmp_path / "e.txt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(mh.MultiheadError, match=r"there is no .txt, .jsonl or .parquet file in .*empty"):
        files_in(tmp_path / "empty")


# ---- batches by length ------------------------------------------------------------------------


def test_batches_by_length_pad_less_and_measure_the_same() -> None:
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(31, 12)
            self.layer = nn.TransformerEncoderLayer(12, 3, 17, dropout=0.0, batch_first=True)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
            hidden = None if attention_mask is None else attention_mask == 0
            return self.layer(self.words(input_ids), src_key_padding_mask=hidden)

    torch.manual_seed(2)
    model = Small().eval()
    documents = [[1 + (i * j) % 30 for j in range(1, 2 + (i * 7) % 23)] for i in range(1, 42)]
    sizes = [len(d) for d in documents]
    sorted_, plain = (mh.measure(model, documents, batch_size=3, window=w) for w in (5, 1))
    for column, values in plain.columns.items():
        if isinstance(values, torch.Tensor):
            torch.testing.assert_close(sorted_[column], values, rtol=2e-5, atol=2e-5, equal_nan=True, msg=column)
    places = sum(len(sizes[i : i + 3]) * max(sizes[i : i + 3]) for i in range(0, len(sizes), 3))
    by_length = 0
    for start in range(0, len(sizes), 15):
        some = sorted(sizes[start : start + 15])
        by_length += sum(len(some[i : i + 3]) * some[min(i + 2, len(some) - 1)] for i in range(0, len(some), 3))
    tokens = sum(sizes)
    assert plain.about["batching"] == {
        "tokens": tokens,
        "padding": round(1 - tokens / places, 4),
        "padding_unsorted": round(1 - tokens / places, 4),
    }
    assert sorted_.about["batching"]["padding"] == round(1 - tokens / by_length, 4)
    assert sorted_.about["batching"]["padding_unsorted"] == plain.about["batching"]["padding"]
    assert by_length < 0.8 * places
    rows = [{"text": "a", "label": 1}, {"text": "b c", "label": 0}]  # as datasets of Hugging Face give them

    class Letters:
        all_special_ids: tuple[int, ...] = ()

        def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
            return {"input_ids": [ord(c) % 31 for c in text]}

    by_row = mh.measure(model, rows, tokenizer=Letters())
    by_text = mh.measure(model, ["a", "b c"], tokenizer=Letters())
    assert by_row.to_json() == by_text.to_json()
    with pytest.raises(SizeError, match="window must be at least 1, got 0"):
        mh.measure(model, documents, window=0)
