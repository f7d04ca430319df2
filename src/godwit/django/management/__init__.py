"""What `manage.py` finds of Godwit.

Packages:

    commands   the commands that godwit.django adds to it
"""
