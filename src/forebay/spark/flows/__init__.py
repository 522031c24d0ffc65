"""Flows: a queue, then actions, then a queue or files, each as one streaming query.

What a flow promises: everything that it reads is in its output, or among the dead letters of its group,
once; whatever is killed, and whenever.
"""
