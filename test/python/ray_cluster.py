"""A Ray cluster of several nodes on one machine, for tests: `ray_cluster.py CPUS...` starts a node for each number.

It says `{"address"}` on a line, then does what lines of stdin ask: `kill N` ends a node as a power cut would,
`add CPUS` adds one. When stdin ends everything does.
"""

import json
import os
import sys

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ["RAY_AUTH_MODE"] = "token"  # whose token RAY_AUTH_TOKEN is
os.environ.setdefault("RAY_worker_niceness", "0")
# So that a node that is gone is noticed in seconds.
system_config = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from ray.cluster_utils import Cluster  # noqa: E402
import psutil  # noqa: E402, I001  (Ray brings it along)


def say(message: object) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def settings(cpus: str) -> dict[str, object]:
    return {"num_cpus": int(cpus), "object_store_memory": 100 << 20, "include_dashboard": False}


def power_off(node: object) -> None:
    """End a node and everything that runs on it: its workers would otherwise live on for a while without it."""
    raylets = [psutil.Process(info.process.pid) for info in node.all_processes["raylet"]]
    workers = [process for raylet in raylets for process in raylet.children(recursive=True)]
    for process in workers:
        process.suspend()  # nothing computes from now on, though Ray takes its time
    cluster.remove_node(node, allow_graceful=False)
    for process in workers:
        if process.is_running():
            process.kill()


head, *others = sys.argv[1:]
cluster = Cluster(True, head_node_args={**settings(head), "_system_config": system_config})
nodes = [cluster.head_node] + [cluster.add_node(**settings(cpus)) for cpus in others]
say({"address": cluster.address})
for line in sys.stdin:
    verb, argument = line.split()
    if verb == "kill":
        power_off(nodes[int(argument)])
    else:
        nodes.append(cluster.add_node(**settings(argument)))
    say({"done": verb})
cluster.shutdown()
