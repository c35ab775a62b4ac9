"""One file a Ray actor class, and how the driver starts, calls and loses them."""
