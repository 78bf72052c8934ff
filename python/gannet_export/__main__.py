"""The command line: python -m gannet_export MODULE:FUNCTION --example batch.npz --out FOLDER."""
import argparse
import importlib
import inspect
import os
import sys

from .errors import ExportError
from .version import VERSION

USAGE = """python -m gannet_export MODULE:FUNCTION --example BATCH.npz --out FOLDER [options]
       python -m gannet_export convert MODEL.pt2 --out FOLDER [options]
       python -m gannet_export data SOURCE --out FOLDER [options]"""
NOTES = """MODULE:FUNCTION() returns the model, a torch.nn.Module; the current folder is on the import path. The names in
BATCH.npz are the arguments of its forward, which returns a scalar loss, or a value that has one as `.loss`,
["loss"] or its first element. The batch needs at least 2 rows."""


def export_parser():
    parser = argparse.ArgumentParser(prog="python -m gannet_export", usage=USAGE, epilog=NOTES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description="Writes a PyTorch model as data that Gannet trains.")
    parser.add_argument("model", metavar="MODULE:FUNCTION", help="a function without arguments that returns the model")
    parser.add_argument("--example", required=True, metavar="BATCH.npz", help="one batch: an array for each argument of forward")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="a folder that is made, or is empty, or was written by this command")
    parser.add_argument("--dtypes", default="fp32,bf16", help="graphs to write: fp32, bf16 or both (the default)")
    parser.add_argument("--modes", default="train,eval", help="graphs to write: train, eval or both (the default)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the comparison and of the probe (0)")
    parser.add_argument("--version", action="version", version=VERSION)
    return parser


def convert_parser():
    parser = argparse.ArgumentParser(prog="python -m gannet_export convert",
                                     description="Converts an archive of torch.export.save. Without the model itself nothing can be "
                                                 "compared: prefer MODULE:FUNCTION where you have it.")
    parser.add_argument("archive", metavar="MODEL.pt2", help="a program whose first output is a scalar loss")
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--mode", default="train", choices=("train", "eval"), help="the model's mode when it was exported (train)")
    return parser


def data_parser():
    parser = argparse.ArgumentParser(prog="python -m gannet_export data",
                                     description="Writes samples as .npy files, which gannet train --data reads. Datasets of Hugging Face "
                                                 "need the package datasets, Parquet needs pyarrow.")
    parser.add_argument("source", metavar="SOURCE", help="a folder of datasets' save_to_disk, a .parquet or .jsonl file, or a folder of these")
    parser.add_argument("--out", required=True, metavar="PATH", help="a folder; with --tokens a file, *.npy")
    parser.add_argument("--columns", nargs="+", default=[], metavar="INPUT[=COLUMN]",
                        help="the model's inputs, and the columns they come from where those have other names (all columns)")
    parser.add_argument("--tokens", metavar="COLUMN", help="join the rows of one column of token ids, of any lengths, in one file")
    parser.add_argument("--split", help="the split of a dataset that has several")
    return parser


def convert_data(options):
    from . import data
    if options.tokens and options.columns:
        raise ExportError("--tokens and --columns are given", "--tokens writes one column, as both input_ids and labels of gannet train")
    if options.tokens:
        data.convert_tokens(options.source, options.out, options.tokens, options.split)
    else:
        data.convert_columns(options.source, options.out, options.columns, options.split)


def model_of(name):
    """Imports MODULE and calls FUNCTION."""
    import torch
    module_name, _, function = name.partition(":")
    if not module_name or not function:
        raise ExportError(f"'{name}' does not name a model", "write MODULE:FUNCTION, as my_module:make_model for my_module.py")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):  # an import of the module itself failed
            raise
        raise ExportError(f"there is no module '{module_name}'", "run the command in the folder that has it, or set PYTHONPATH") from None
    made = getattr(module, function, None)
    if made is None:
        raise ExportError(f"module '{module_name}' has no '{function}'", "name a function that returns the model")
    if not callable(made) or isinstance(made, torch.nn.Module):
        raise ExportError(f"'{function}' of module '{module_name}' is a {type(made).__name__}", "name a function that returns the model")
    try:
        inspect.signature(made).bind()
    except TypeError as error:
        raise ExportError(f"{name} cannot be called without arguments: {error}", "name a function that has none, or defaults for all") from None
    return made()


def main(arguments=None):
    """Returns the exit code: 0, or 2 with a message on stderr for a model or an argument that is refused."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments and arguments[0] == "convert":
            from .convert import convert_archive
            options = convert_parser().parse_args(arguments[1:])
            convert_archive(options.archive, options.out, mode=options.mode)
        elif arguments and arguments[0] == "data":
            convert_data(data_parser().parse_args(arguments[1:]))
        else:
            options = export_parser().parse_args(arguments)
            from .export import export_model, read_batch
            export_model(model_of(options.model), read_batch(options.example), options.out, dtypes=options.dtypes.split(","),
                         modes=options.modes.split(","), seed=options.seed)
    except ExportError as error:
        print(f"gannet_export: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
