#!/usr/bin/env python3
"""docs/command-line.md shows what the program prints: every block that begins with `$ heddle ... --help` is compared.

usage: command_line_page_test.py HEDDLE PAGE [--update]     --update writes the program's texts into the page
"""
import re
import subprocess
import sys

BLOCK = re.compile(r"```\n\$ heddle ([^\n]*)\n(.*?)```", re.S)


def output_of(program, arguments):
    return subprocess.run([program, *arguments.split()], capture_output=True, text=True, check=True).stdout


def main():
    program, page = sys.argv[1:3]
    with open(page, encoding="utf-8") as f:
        text = f.read()
    blocks = BLOCK.findall(text)
    new = BLOCK.sub(lambda m: f"```\n$ heddle {m[1]}\n{output_of(program, m[1])}```", text)
    if "--update" in sys.argv:
        with open(page, "w", encoding="utf-8") as f:
            f.write(new)
        return 0
    commands = re.findall(r"^  ([\w-]+)  ", output_of(program, "--help").split("Commands:")[1].split("\n\n")[0], re.M)
    missing = [c for c in commands if c + " --help" not in [arguments for arguments, _ in blocks]]
    for command in missing:
        print(f"{page} does not show: heddle {command} --help")
    if new != text:
        print(f"{page} differs from what {program} prints; bring it up to date with: {' '.join(sys.argv)} --update")
    return 1 if missing or new != text or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())
