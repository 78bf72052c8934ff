"""Samples as .npy files that `gannet train --data` reads: one array for each column, [samples, ...].

Sources: a dataset of Hugging Face on disk (save_to_disk), Parquet, JSON lines. Rows of one column have one shape. Their libraries,
datasets and pyarrow, are imported when a source needs them.
"""
import importlib
import json
import os
import shutil
import tempfile

import numpy

from .errors import ExportError

SOURCES = "a folder of datasets' save_to_disk, a .parquet file, a .jsonl file, or a folder of such files"
BATCH = 1000  # rows in memory at a time


def _import(name, what):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ExportError(f"{what} needs the package {name}: {error}", f"pip install {name}") from None


def _jsonl(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows = []
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ExportError(f"{path}:{number}: {error}", "a line is one JSON object, a sample") from None
                if not isinstance(row, dict):
                    raise ExportError(f"{path}:{number}: a {type(row).__name__}", "a line is one JSON object, a sample")
                rows.append(row)
                if len(rows) == BATCH:
                    yield _columns(rows, path)
                    rows = []
            if rows:
                yield _columns(rows, path)


def _columns(rows, path):
    for row in rows:
        if row.keys() != rows[0].keys():
            raise ExportError(f"{path}: a row has {', '.join(row)}, another one {', '.join(rows[0])}", "every sample has the same columns")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _parquet(paths):
    parquet = _import("pyarrow.parquet", paths[0])
    for path in paths:
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH):
                    yield batch.to_pydict()
        except (OSError, ValueError) as error:  # pyarrow's exceptions are subclasses of these
            raise ExportError(f"{path} is not a Parquet file that pyarrow reads: {error}") from None


def _arrow(path, split):
    datasets = _import("datasets", path)
    try:
        found = datasets.load_from_disk(path)
    except (OSError, ValueError) as error:
        raise ExportError(f"{path} is not a dataset that save_to_disk wrote: {error}") from None
    if isinstance(found, datasets.DatasetDict):
        if split not in found:
            raise ExportError(f"{path} has the splits {', '.join(found)}" + (f", and not '{split}'" if split else ""),
                              "choose one by --split; each becomes a folder of its own")
        found = found[split]
    for begin in range(0, len(found), BATCH):
        yield found.with_format(None)[begin:begin + BATCH]


def batches_of(source, split=None):
    """Yields {column: list of rows} for one chunk of samples at a time."""
    if not os.path.exists(source):
        raise ExportError(f"there is no {source}", f"name {SOURCES}")
    if os.path.isdir(source) and {"state.json", "dataset_dict.json"} & set(os.listdir(source)):
        return _arrow(source, split)
    if split:
        raise ExportError(f"--split names '{split}', and {source} is not a dataset that save_to_disk wrote", "leave it out, or name a file")
    paths = sorted(os.path.join(source, name) for name in os.listdir(source)) if os.path.isdir(source) else [source]
    for extensions, read in (((".parquet",), _parquet), ((".jsonl", ".json"), _jsonl)):
        chosen = [path for path in paths if path.endswith(extensions)]
        if chosen:
            return read(chosen)
    raise ExportError(f"{source} is none of the kinds of data", f"name {SOURCES}")


def _array_of(name, rows):
    """The rows of a column as int64, float32 or bool."""
    try:
        array = numpy.asarray(rows)
    except ValueError:  # NumPy's term for rows of different lengths
        lengths = sorted({len(row) for row in rows if hasattr(row, "__len__")})
        _refuse(name, f"its rows have from {lengths[0]} to {lengths[-1]} elements" if lengths else "its rows have different shapes")
    if array.dtype.kind == "f":
        return array.astype(numpy.float32)
    if array.dtype.kind == "i":
        return array.astype(numpy.int64)
    if array.dtype.kind == "u" and (not array.size or array.max() < 2**63):
        return array.astype(numpy.int64)
    if array.dtype.kind == "b":
        return array
    _refuse(name, "its values are text" if array.dtype.kind in "US" else "its values are not numbers, or some are missing")


def _refuse(name, what):
    raise ExportError(f"column '{name}': {what}", "tokenise and pad before, as by datasets' map(); or leave it out by --columns; for "
                                                  "texts of any length, --tokens joins the rows of one column")


class _File:
    """Appends rows to an .npy file, and writes its header once the number of rows is known."""

    def __init__(self, name, path):
        self.name, self.path, self.samples, self.shape, self.dtype = name, path, 0, None, None

    def add(self, array):
        if self.shape is None:
            self.shape, self.dtype = array.shape[1:], array.dtype
        if (array.shape[1:], array.dtype) != (self.shape, self.dtype):
            _refuse(self.name, f"samples are {array.dtype}{list(array.shape[1:])} and {self.dtype}{list(self.shape)}")
        with open(self.path + ".rows", "ab") as file:
            file.write(numpy.ascontiguousarray(array).tobytes())
        self.samples += len(array)

    def finish(self):
        with open(self.path, "wb") as file, open(self.path + ".rows", "rb") as rows:
            numpy.lib.format.write_array_header_1_0(file, {"descr": numpy.lib.format.dtype_to_descr(self.dtype), "fortran_order": False,
                                                           "shape": (self.samples, *self.shape)})
            shutil.copyfileobj(rows, file)
        os.remove(self.path + ".rows")


def _columns_of(chosen, batch):
    """Parses NAME or NAME=COLUMN into (input, column) pairs; selects every column if none is given."""
    pairs = [(one.partition("=")[0], one.partition("=")[2] or one) for one in chosen or batch]
    for _, column in pairs:
        if column not in batch:
            raise ExportError(f"the data has the columns {', '.join(batch)}, and not '{column}'", "name some of these by --columns")
    return pairs


def convert_columns(source, out, columns=(), split=None, say=print):
    """Writes a folder with an array [samples, ...] for each column: int64, float32 or bool."""
    if os.path.exists(out) and (not os.path.isdir(out) or os.listdir(out)):
        raise ExportError(f"{out} is there already", "name a folder that does not exist, or an empty one")
    parent = os.path.dirname(os.path.abspath(out))
    os.makedirs(parent, exist_ok=True)
    new, files = tempfile.mkdtemp(prefix=".gannet_export-", dir=parent), {}
    try:
        for batch in batches_of(source, split):
            for name, column in _columns_of(columns, batch):
                if name not in files:
                    files[name] = _File(column, os.path.join(new, f"{name}.npy"))
                files[name].add(_array_of(column, batch[column]))
        if not files:
            raise ExportError(f"{source} has no samples")
        for file in files.values():
            file.finish()
        os.chmod(new, 0o755)
        os.replace(new, out)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    for name, file in files.items():
        say(f"{os.path.join(out, name)}.npy: {file.dtype}[{', '.join(map(str, (file.samples, *file.shape)))}]")


def convert_tokens(source, out, column, split=None, say=print):
    """Concatenates the rows of a token column, which may differ in length, into one array: uint16
    if the tokens fit, else int32."""
    if not out.endswith(".npy"):
        raise ExportError(f"--out names '{out}', and tokens are one file", "name it *.npy")
    if os.path.exists(out):
        raise ExportError(f"{out} is there already", "remove it, or choose another name")
    parts, rows = [], 0
    for batch in batches_of(source, split):
        _columns_of([column], batch)
        for row in batch[column]:
            array = numpy.asarray(row)
            if array.ndim != 1 or array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= 2**31):
                _refuse(column, "a row is not a list of tokens, which are integers from 0 to 2147483647")
            parts.append(array.astype(numpy.int32))
            rows += 1
    tokens = numpy.concatenate(parts) if parts else numpy.empty(0, numpy.int32)
    if not tokens.size:
        raise ExportError(f"{source} has no tokens in '{column}'")
    if tokens.max() < 2**16:
        tokens = tokens.astype(numpy.uint16)
    numpy.save(out, tokens)
    say(f"{out}: {tokens.size} tokens of {rows} rows, {tokens.dtype}; pass --seq_len to gannet train")
