"""A rule whose functions take other states than it declares is refused by the compiler in a sentence.

    python3 rule_mistakes_test.py CXX SDK_INCLUDE
"""
import pathlib
import subprocess
import sys

MISTAKES = {
    None: None,
    "STATE_MISSING": "the rule's operator() takes a gradient, the parameter and each state of kStates",
    "PARAMETER_COPIED": "the rule's operator() takes the parameter by value, and would change a copy: write V& parameter",
    "NO_TERM_STATES": "each state of kTermStates (which lists the states that it takes: none without it)",
    "EVALUATES_TOO_FEW": "the rule's evaluate() takes the parameter and each state of kStates",
}


def main():
    compiler, include = sys.argv[1:3]
    source = pathlib.Path(__file__).with_name("rule_mistakes.cpp")
    # Whether Highway is installed, as GannetPlugin.cmake looks for it.
    has_highway = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"], input="#include <hwy/highway.h>\n",
                                 text=True, capture_output=True).returncode == 0
    for loops in ([], ["-DGANNET_RULE_HIGHWAY=1"]) if has_highway else ([],):
        for mistake, sentence in MISTAKES.items():
            name = f"{mistake or 'the sound rule'}, {'Highway' if loops else 'plain loops'}"
            done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{include}", *loops,
                                   *([f"-D{mistake}"] if mistake else []), source], text=True, capture_output=True)
            if (done.returncode != 0) != bool(sentence):
                sys.exit(f"FAILED: {name}: exit code {done.returncode}\n{done.stderr}")
            if not sentence:
                continue
            errors = [line for line in done.stderr.splitlines() if " error: " in line]
            strange = [line for line in errors if sentence not in line]
            if not errors or strange:
                sys.exit(f"FAILED: {name}: not {sentence!r} alone\n{done.stderr}")
            print(f"{name}: {len(errors)} errors, {len(done.stderr.splitlines())} lines")


if __name__ == "__main__":
    main()
