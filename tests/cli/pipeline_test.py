"""gannet pipeline show: the picture of a schedule, its numbers, and what it says to a wrong one."""
import re
import unittest
import xml.etree.ElementTree

from support import Case

SIZE = ("--stages", "4", "--micro-batches", "8")


class Pipeline(Case):
    def show(self, *arguments, code=0):
        return self.gannet("pipeline", "show", *arguments, code=code)

    def test_text_has_a_row_for_each_rank_and_ends_with_the_numbers(self):
        self.assertEqual(self.show("--schedule", "1f1b", "--stages", "2", "--micro-batches", "2"),
                         "rank 0  0F0 0F1         0B0----     0B1----\n"
                         "rank 1      1F0 1B0---- 1F1 1B1----\n\n"
                         "total 9, idle share 33.3%\n\n"
                         "rank   idle share   peak live activations\n"
                         "   0        33.3%                       2\n"
                         "   1        33.3%                       1\n")

    def test_every_schedule_has_the_length_of_its_paper(self):
        for name, total in (("gpipe", "33"), ("1f1b", "33"), ("interleaved", "28.5"), ("zb-h1", "27"),
                            ("interleaved-zb", "25.5"), ("zb-v", "25.5"), ("dualpipe-v", "25.5"), ("inference", "11")):
            with self.subTest(name):
                self.assertIn(f"\ntotal {total}, idle share ", self.show("--schedule", name, *SIZE))

    def test_times_link_and_chunks_act(self):
        self.assertIn("total 66,", self.show("--schedule", "1f1b", *SIZE, "--times", "2,2,2"))
        self.assertIn("total 13.5,", self.show("--schedule", "1f1b", "--stages", "4", "--micro-batches", "1", "--link", "0.25"))
        self.assertIn("total 26.25,", self.show("--schedule", "interleaved", *SIZE, "--chunks", "4"))

    def test_csv_of_one_schedule_is_the_input_of_another_call(self):
        csv = self.show("--schedule", "zb-v", *SIZE, "--csv")
        self.assertEqual(len(csv.splitlines()), 4)
        self.write("mine.csv", csv)
        self.assertEqual(self.show("--schedule", "mine.csv", "--csv"), csv)
        self.assertEqual(self.show("--schedule", "mine.csv", *SIZE), self.show("--schedule", "zb-v", *SIZE))

    def test_auto_finds_the_shortest_within_the_memory(self):
        for more, longest, most in ((), 25.5, 9), (("--memory", "2"), 99, 2), (("--times", "1,1.4,0.6", "--link", "0.1"), 99, 9):
            with self.subTest(more):
                text = self.show("--schedule", "auto", *SIZE, *more)
                self.assertIn("\nschedule: ", text)
                self.assertLessEqual(float(re.search(r"total ([\d.]+),", text)[1]), longest)
                for line in text.splitlines()[-4:]:
                    self.assertLessEqual(float(line.split()[-1]), most)

    def test_svg_is_well_formed(self):
        page = xml.etree.ElementTree.fromstring(self.show("--schedule", "zb-h1", *SIZE, "--svg"))
        self.assertEqual(len(page.findall("{http://www.w3.org/2000/svg}g")), 4 * 8 * 3)

    def test_a_slip_gets_what_was_meant_and_the_next_step(self):
        self.write("cell.csv", "0F0,0B0\n1F0,1X0\n")
        self.write("short.csv", "0F0,0B0\n1F0\n")
        (self.folder / "folder").mkdir()
        for arguments, answer in (
                ("--schedule 1f1b --stages 65536 --micro-batches 1048576", "1048576 micro-batches through 65536 parts of a model are too many"),
                ("--schedule auto --stages 2048 --micro-batches 1024", "are too many: at most 1048576 forward passes"),
                ("--schedule zb-w --stages 2 --micro-batches 2", "'zb-w' is neither a schedule nor a CSV file that can be read; did you mean"),
                ("--schedule folder", "'folder' is neither a schedule nor a CSV file"),
                ("--schedule zb-v --stages 2", "schedule zb-v needs --micro-batches"),
                ("--schedule dualpipe-v --stages 4 --micro-batches 7", "4 stages need 8 micro-batches at least"),
                ("--schedule 1f1b --stages 2 --micro-batches 2 --times 1,2", "--times is '1,2', and must be three numbers"),
                ("--schedule 1f1b --stages 2 --micro-batches 2 --link x", "--link is 'x', and must be a number from 0"),
                ("--schedule cell.csv", "cell.csv: row 2, column 2: '1X0' is not a schedule action"),
                ("--schedule short.csv", "short.csv: rank 1, 1 positions: 1B0 is missing"),
                ("--schedule auto --stages 4 --micro-batches 8 --memory 0.2", "no schedule keeps at most 0.2 activations on each rank"),
                ("--schedule zb-v --stages 4 --micro-batches 8 --memory 2", "--memory is for the schedule auto"),
                ("--schedule auto --stages 4", "schedule auto needs --stages and --micro-batches"),
                ("--schedule cell.csv --csv --svg", "--csv excludes --svg")):
            with self.subTest(arguments):
                text = self.show(*arguments.split(), code=2)
                self.assertIn(answer, text)
                self.assertRegex(text, r"\n  \(.+\)\n$")


unittest.main()
