"""A shop on Django: an order and its message are kept together, and a worker charges it.

python manage.py migrate
python manage.py runserver           # the web server
python manage.py godwit worker       # the worker, in another terminal
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
