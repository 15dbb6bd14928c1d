"""Who does the tasks: processes of this machine, or Ray; dead ones are replaced, and none outlives the job.

What a task is, and what becomes of it, is not known here.
"""
