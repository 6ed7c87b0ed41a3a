"""Why a group or a cluster makes no progress: findings with a cause, a severity and the next step.

Read `model` first: the reports are data, which commands and web pages render. `explain_group` and `explain_cluster`
read a cluster of any kind with an asyncio admin client, and change nothing. `samples` reads a group,
`records` the records at its positions, and `group_causes` decides, without I/O. `cluster_samples` and `cluster_causes`
do the same for a cluster.
"""
