#!/bin/sh
# Goal: the program starts, and says what it misses, on any x86-64 CPU: nothing in it needs more than that until an instruction set
#       has been chosen.
# Method: reads the machine code. Instructions of AVX and beyond may stand only in functions that Highway dispatches to, whose
#         names have the instruction set's own namespace; so none is in a static initialiser or a template shared with other code.
#
# usage: baseline_isa_test.sh PROGRAM
objdump --disassemble --no-show-raw-insn --section=.text --section=.init "$1" | awk '
  /^[0-9a-f]+ <.*>:$/ { name = $2; chosen = name ~ /N_(AVX|SSE)[0-9A-Z_]*/; next }
  /^ +[0-9a-f]+:\t/ {
    ++instructions
    if ($2 !~ /^v[a-z]/ && $0 !~ /%[yz]mm/) next
    ++wide
    if (!chosen && !(name in told)) { told[name] = 1; print name ": " $0; broken = 1 }
  }
  END {
    # A look at the method itself: the kernels are there, and so is the rest.
    if (wide < 1000 || instructions < 100 * 1000) { print "expected a program with kernels, got " wide + 0 " wide instructions of " instructions + 0; exit 1 }
    exit broken
  }'
