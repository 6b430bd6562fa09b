#!/bin/bash
# fleet.sh: three servers behind HAProxy, and behind round robin in the client, are replaced one by
# one under load, lose one, and have a slow one.
#
# usage: tests/fleet.sh [--only=REHEARSAL[,REHEARSAL]...]
#   --only   of the rehearsals that --help lists
#
# Builds `release` first. Takes about three minutes on a machine that does nothing else; servers,
# balancer and clients share its cores. Needs HAProxy (section `test` of deploy/packages.txt).
# Prints every check with what was expected and found. Exit code 1 when one fails, or when anything
# hangs, 64 for an argument that it does not know.
set -euo pipefail
exec "$(dirname -- "${BASH_SOURCE[0]}")/run_program.sh" fleet "$@"
