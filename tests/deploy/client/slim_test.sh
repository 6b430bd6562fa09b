#!/bin/sh
# Goal: the client of the image needs nothing that draws, says so before it asks anything of a
#       server, and is the same otherwise.
# Method: reads what the two programs link; runs the commands that would draw, with no server to
#         talk to.
#
# usage: slim_test.sh ENCODERCTL ENCODERCTL_SLIM
full=$1 slim=$2 broken=0

fail() { echo "$*"; broken=1; }
draws() { objdump -p "$1" | grep -q 'NEEDED.*libcairo'; }

draws "$full" || fail 'encoderctl should draw: the look for cairo finds nothing'
draws "$slim" && fail 'encoderctl_slim links cairo'

# refuses ARGUMENT...: exit code 64, by the word and not by the connection.
refuses() {
  said=$("$slim" "$@" --address=127.0.0.1:1 2>&1)
  code=$?
  [ "$code" = 64 ] || fail "$*: expected exit code 64, got $code: $said"
  case $said in
    *'draws no pictures'*) ;;
    *) fail "$*: expected a word about pictures, got: $said" ;;
  esac
}
refuses attention 1,2,3
refuses load --sweep --figure=load.png

[ "$("$slim" --help)" = "$("$full" --help)" ] || fail 'the two programs have other commands'
"$slim" health --address=127.0.0.1:1 --timeout=1s >/dev/null 2>&1
[ $? = 69 ] || fail 'health: expected exit code 69 where nobody listens'
exit "$broken"
