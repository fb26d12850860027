"""What `render.py` is made of: reading records, tables from them, and drawings from them."""
