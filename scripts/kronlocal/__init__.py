"""A Kronserve cluster on this machine: processes, training runs, reports."""
