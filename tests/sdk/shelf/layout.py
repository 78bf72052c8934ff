"""Writes check.rs: every size and offset of the structs that abi.rs has, as a C compiler sees them in gannet/abi.h.

    python3 layout.py CC INCLUDE_FOLDER abi.rs FOLDER

Compiled by rustc, check.rs is a program that fails where abi.rs differs, and does not compile where abi.rs lacks a field. Rust
learned to ask for offsets at compile time in 1.77, after Debian 12's compiler.
"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import abi_header  # noqa: E402

MINOR = 0  # which abi.rs targets

PROGRAM = """#include <gannet/abi.h>
#include <stdio.h>
#define SIZE(type) printf("    size::<abi::%s>(\\"%s\\", %zu);\\n", #type, #type, sizeof(type))
#define FIELD(type, name, rust) \\
  printf("    field!(%s, %s, %zu, %zu);\\n", #type, rust, offsetof(type, name), sizeof(((type*)0)->name))
int main(void) {
"""

HEAD = """// Written by layout.py.
#[path = "%s"]
mod abi;

fn expect(what: &str, found: (usize, usize), expected: (usize, usize)) {
    if found != expected {
        println!("{} is at (offset, size) {:?} in abi.rs, {:?} in abi.h", what, found, expected);
        std::process::exit(1);
    }
}
fn size<T>(name: &str, expected: usize) {
    expect(name, (0, std::mem::size_of::<T>()), (0, expected));
}
macro_rules! field {
    ($type:ident, $field:ident, $offset:expr, $size:expr) => {{
        let whole = std::mem::MaybeUninit::<abi::$type>::uninit();
        let begin = whole.as_ptr();
        let field = unsafe { std::ptr::addr_of!((*begin).$field) };
        fn size_at<T>(_: *const T) -> usize {
            std::mem::size_of::<T>()
        }
        let name = concat!(stringify!($type), ".", stringify!($field));
        expect(name, (field as usize - begin as usize, size_at(field)), ($offset, $size));
    }};
}

fn main() {
"""


def main():
    compiler, include, rust, folder = sys.argv[1:]
    text = pathlib.Path(include, "gannet/abi.h").read_text()
    wanted = set(re.findall(r"pub struct (gannet_\w+)", pathlib.Path(rust).read_text()))
    known = abi_header.structs(text, MINOR)
    if unknown := wanted - {each.name for each in known}:
        sys.exit(f"abi.h has no {', '.join(sorted(unknown))}")
    program = PROGRAM
    for struct in known:
        if struct.name in wanted:
            program += f"  SIZE({struct.name});\n"
            for field in struct.fields:
                program += f'  FIELD({struct.name}, {field}, "{"r#type" if field == "type" else field}");\n'
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    (out / "layout.c").write_text(program + "  return 0;\n}\n")
    subprocess.run([compiler, "-std=c99", f"-DGANNET_TARGET_MINOR={MINOR}", "-I", include, "-o", out / "layout", out / "layout.c"], check=True)
    rows = subprocess.run([out / "layout"], check=True, capture_output=True, text=True).stdout
    count = rows.count("\n")
    (out / "check.rs").write_text(HEAD % pathlib.Path(rust).resolve() + rows + f'    println!("{count} sizes and offsets agree");\n}}\n')


if __name__ == "__main__":
    main()
