#!/usr/bin/env python3
"""How many replicas a rate of calls needs, for a bound on their p99.

A replica with k workers is a queue with k servers (M/G/k): calls come at random, each takes one
worker for its service time, which varies with its length. The mean wait is Erlang's for
exponential times, corrected by how much they vary (Allen and Cunneen), and the wait of those who
wait is taken as exponential:

    C   = Erlang C(k, a), the share of calls that wait; a = rate * call, rho = a / k
    W99 = ln(C / 0.01) * call * (1 + cv2) / 2 / (k * (1 - rho)),  0 where fewer than 1 % wait
    p99 = W99 + longest

`call` is 1 / (offline calls per second of one worker), `longest` the time of the longest call
alone, cv2 the squared coefficient of variation of call times: 0 where all are alike, 0.25 for
passages of text, 1 and more for a mix of queries and documents. Replicas share nothing, so each is
sized for rate / replicas: what a balancer by least connections does better than that is a reserve.
"""
import argparse
import math


def waiting_share(workers, offered):
    """Erlang C: the share of calls that find all workers busy. `offered` < workers, in workers."""
    blocked = 1.0  # Erlang B, worker by worker
    for k in range(1, workers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    return workers * blocked / (workers - offered * (1 - blocked))


def p99(rate, workers, call, longest, cv2):
    """Of one replica, in the units of `call`; infinite where it cannot keep up."""
    offered = rate * call
    if offered >= workers:
        return math.inf
    late = waiting_share(workers, offered) / 0.01
    wait = call * (1 + cv2) / 2 / (workers - offered)
    return longest + (wait * math.log(late) if late > 1 else 0)


def replicas_for(rate, bound, workers, call, longest, cv2):
    """The fewest whose p99 keeps the bound; None where no number does."""
    if longest > bound:
        return None
    replicas = 1
    while p99(rate / replicas, workers, call, longest, cv2) > bound:
        replicas += 1
    return replicas


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog=(
        "`encoderctl load --sweep` against a server with --workers=1 measures the first, a lone "
        "call the second."))
    parser.add_argument("--offline_rate", type=float, required=True,
                        help="calls per second of one worker, saturated")
    parser.add_argument("--longest_ms", type=float, required=True, help="the longest call alone")
    parser.add_argument("--cv2", type=float, default=0.5,
                        help="of call times; 0.5, which is cautious for text")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8],
                        help="of a replica: its cores; 1 2 4 8")
    parser.add_argument("--rates", type=float, nargs="+", default=[50, 200, 1000, 5000],
                        help="calls per second of all replicas; 50 200 1000 5000")
    parser.add_argument("--bounds_ms", type=float, nargs="+", default=[200, 500],
                        help="of the p99; 200 500")
    arguments = parser.parse_args()
    call = 1 / arguments.offline_rate
    longest = arguments.longest_ms / 1000
    print("| calls/s | p99 within | " + " | ".join(
        f"{k} worker{'s' * (k > 1)} each" for k in arguments.workers) + " |")
    print("|---|---|" + "---|" * len(arguments.workers))
    for rate in arguments.rates:
        for bound in arguments.bounds_ms:
            cells = []
            for k in arguments.workers:
                found = replicas_for(rate, bound / 1000, k, call, longest, arguments.cv2)
                busy = "never" if found is None else f"{found} ({rate * call / found / k:.0%} busy)"
                cells.append(busy)
            print(f"| {rate:g} | {bound:g} ms | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
