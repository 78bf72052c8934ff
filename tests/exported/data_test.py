"""gannet_export data: sources, columns, tokens, and what is refused. Skipped where Python has no torch of 2.11 or newer."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy

    from gannet_export import ExportError, data
except (ImportError, OSError) as error:
    print(f"skipped: {error}")
    sys.exit(77)


def has(module):
    try:
        __import__(module)
    except ImportError:
        return False
    return True


ROWS = [{"input_ids": [i, i + 1, i + 2], "score": i / 4, "flag": i % 2 == 0} for i in range(2500)]  # more than a batch


class Data(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gannet-data-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.out, self.lines = str(self.folder / "out"), []

    def jsonl(self, rows, name="rows.jsonl"):
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(self.folder / name)

    def columns(self, source, *columns, **options):
        data.convert_columns(source, self.out, columns, say=self.lines.append, **options)
        return {path.stem: numpy.load(path) for path in pathlib.Path(self.out).iterdir()}

    def refused(self, call, *arguments, **options):
        with self.assertRaises(ExportError) as caught:
            call(*arguments, **options)
        self.assertFalse(pathlib.Path(self.out).exists(), "something was written")
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name.startswith(".")], [], "something temporary is left")
        return str(caught.exception)

    def require_rows(self, found):
        self.assertEqual({name: (str(one.dtype), one.shape) for name, one in found.items()},
                         {"input_ids": ("int64", (2500, 3)), "score": ("float32", (2500,)), "flag": ("bool", (2500,))})
        self.assertEqual(found["input_ids"].tolist(), [row["input_ids"] for row in ROWS])
        self.assertEqual(found["score"].tolist(), [row["score"] for row in ROWS])
        self.assertEqual(found["flag"].tolist(), [row["flag"] for row in ROWS])

    def test_json_lines_become_an_array_for_each_column(self):
        self.require_rows(self.columns(self.jsonl(ROWS)))
        self.assertIn(f"{self.out}/input_ids.npy: int64[2500, 3]", self.lines)

    def test_files_of_a_folder_are_joined_in_the_order_of_their_names(self):
        (self.folder / "parts").mkdir()
        self.jsonl(ROWS[1200:], "parts/b.jsonl")
        self.jsonl(ROWS[:1200], "parts/a.jsonl")
        self.require_rows(self.columns(str(self.folder / "parts")))

    def test_inputs_may_have_other_names_than_columns(self):
        found = self.columns(self.jsonl(ROWS), "input_ids", "labels=input_ids")
        self.assertEqual(sorted(found), ["input_ids", "labels"])
        self.assertTrue((found["input_ids"] == found["labels"]).all())

    def test_tokens_are_joined_in_uint16_where_they_fit(self):
        source = self.jsonl([{"ids": [1, 2, 65535]}, {"ids": []}, {"ids": [4]}])
        out = str(self.folder / "tokens.npy")
        data.convert_tokens(source, out, "ids", say=self.lines.append)
        tokens = numpy.load(out)
        self.assertEqual((str(tokens.dtype), tokens.tolist()), ("uint16", [1, 2, 65535, 4]))
        out = str(self.folder / "more.npy")
        data.convert_tokens(self.jsonl([{"ids": [1, 65536]}]), out, "ids", say=self.lines.append)
        self.assertEqual(str(numpy.load(out).dtype), "int32")

    @unittest.skipUnless(has("pyarrow"), "there is no pyarrow")
    def test_parquet_is_read(self):
        import pyarrow
        import pyarrow.parquet
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), self.folder / "rows.parquet")
        self.require_rows(self.columns(str(self.folder / "rows.parquet")))
        (self.folder / "bad.parquet").write_text("PAR1 and no more")
        shutil.rmtree(self.out)
        self.assertIn("is not a Parquet file", self.refused(self.columns, str(self.folder / "bad.parquet")))

    @unittest.skipUnless(has("datasets"), "there is no datasets")
    def test_a_dataset_of_hugging_face_is_read(self):
        import datasets
        dataset = datasets.Dataset.from_list(ROWS)
        dataset.save_to_disk(self.folder / "one")
        self.require_rows(self.columns(str(self.folder / "one")))
        shutil.rmtree(self.out)
        datasets.DatasetDict({"train": dataset, "test": dataset.select(range(5))}).save_to_disk(self.folder / "two")
        self.assertIn("has the splits train, test", self.refused(self.columns, str(self.folder / "two")))
        self.assertEqual(len(self.columns(str(self.folder / "two"), split="test")["score"]), 5)

    def test_without_its_library_a_source_is_refused_with_the_way_to_get_it(self):
        (self.folder / "rows.parquet").write_text("PAR1")
        kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "pyarrow"}
        sys.modules["pyarrow"] = None  # as an import finds it that is not installed
        try:
            text = self.refused(self.columns, str(self.folder / "rows.parquet"))
        finally:
            del sys.modules["pyarrow"]
            sys.modules.update(kept)
        self.assertIn("rows.parquet needs the package pyarrow", text)
        self.assertIn("pip install pyarrow", text)

    def test_what_is_not_an_array_of_numbers_is_refused_by_its_column(self):
        def refused(*rows):
            return self.refused(self.columns, self.jsonl(rows))

        self.assertIn("column 'a': its rows have from 1 to 2 elements", refused({"a": [1]}, {"a": [1, 2]}))
        self.assertIn("column 'a': its values are text", refused({"a": "word"}))
        self.assertIn("column 'a': its values are not numbers, or some are missing", refused({"a": 1}, {"a": None}))
        self.assertIn("rows.jsonl: a row has b, another one a", refused({"a": 1}, {"b": 1}))
        self.assertIn("rows.jsonl:1: a list", refused([1]))
        self.assertIn("has no samples", refused())
        later = [{"a": [1]}] * 1000 + [{"a": [1, 2]}]
        self.assertIn("column 'a': samples are int64[2] and int64[1]", refused(*later))
        (self.folder / "rows.jsonl").write_text('{"a": 1}\n{"a": ')
        self.assertIn("rows.jsonl:2: ", self.refused(self.columns, str(self.folder / "rows.jsonl")))

    def test_a_source_or_a_choice_that_is_not_there_is_refused(self):
        source = self.jsonl(ROWS)
        self.assertIn("there is no nowhere", self.refused(self.columns, "nowhere"))
        self.assertIn("is none of the kinds of data", self.refused(self.columns, __file__))
        self.assertIn("the data has the columns input_ids, score, flag, and not 'label'", self.refused(self.columns, source, "label"))
        self.assertIn("--split names 'test'", self.refused(self.columns, source, split="test"))
        self.assertIn("name it *.npy", self.refused(data.convert_tokens, source, self.out, "input_ids"))
        self.assertIn("is not a list of tokens", self.refused(data.convert_tokens, source, self.out + ".npy", "score"))

    def test_a_folder_of_something_else_is_left_alone(self):
        pathlib.Path(self.out).mkdir()
        (pathlib.Path(self.out) / "notes.txt").write_text("mine")
        with self.assertRaises(ExportError):
            self.columns(self.jsonl(ROWS))
        self.assertEqual([path.name for path in pathlib.Path(self.out).iterdir()], ["notes.txt"])

    def test_the_command_line(self):
        self.jsonl(ROWS)

        def run(*arguments):
            return subprocess.run([sys.executable, "-m", "gannet_export", "data", *arguments], cwd=self.folder, text=True, capture_output=True)

        done = run("rows.jsonl", "--out", "train", "--columns", "input_ids", "labels=input_ids")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("train/labels.npy: int64[2500, 3]", done.stdout)
        done = run("rows.jsonl", "--out", "tokens.npy", "--tokens", "input_ids")
        self.assertIn("tokens.npy: 7500 tokens of 2500 rows, uint16", done.stdout)
        done = run("rows.jsonl", "--out", "more.npy", "--tokens", "input_ids", "--columns", "score")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--tokens and --columns are given", done.stderr)


if __name__ == "__main__":
    unittest.main()
