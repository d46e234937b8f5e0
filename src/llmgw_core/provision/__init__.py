"""A new machine on a Proxmox cluster, from a cloud image to one that answers.

`request` and `facts` are what is asked and what is found; `checks`, `steps`, `user_data` and `words` decide, purely;
`commands`, `reading`, `image`, `making` and `awaiting` touch the hypervisor. Needs click and attrs only.
"""
