"""Helpers for tests that read tables: writers of Arrow and Parquet files."""

import json
import struct
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Columns = dict[str, Any]

WIKIPEDIA: Columns = {
    "id": ["12", "39"],
    "url": ["https://a.org/12", "https://a.org/39"],
    "title": ["Anarchism", "東京"],
    "text": ["Anarchism is a philosophy.", "東京は首都。"],
}
WIKI_DPR: Columns = {
    "id": ["1", "2"],
    "text": ["Aaron is a prophet.", "He had a brother."],
    "title": ["Aaron", "Aaron"],
    "embeddings": [[0.5] * 768, [0.25] * 768],
}


def write_arrow_stream(path: Path, columns: Columns, *, rows: int = 1000) -> Path:
    """Write Arrow's stream format, as Dataset.save_to_disk does."""
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as write_arrow_file, pa.ipc.new_stream(write_arrow_file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_arrow_file(path: Path, columns: Columns) -> Path:
    """Write Arrow's file format."""
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as target, pa.ipc.new_file(target, table.schema) as writer:
        writer.write_table(table)
    return path


def move_last_offset(path: Path, texts: list[str], end: int) -> Path:
    """Change the end of the last of these texts, a column of an Arrow file, as an attacker would."""
    offsets = struct.pack(f"<{len(texts) + 1}i", *accumulate((len(text.encode()) for text in texts), initial=0))
    data = path.read_bytes()
    place = data.rindex(offsets) + len(offsets) - 4
    path.write_bytes(data[:place] + struct.pack("<i", end) + data[place + 4 :])
    return path


def write_parquet(path: Path, columns: Columns, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def save_dataset(folder: Path, *parts: Columns) -> Path:
    """Write a folder as Dataset.save_to_disk does."""
    folder.mkdir(parents=True)
    names = [f"data-{n:05}-of-{len(parts):05}.arrow" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        write_arrow_stream(folder / name, part)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder
