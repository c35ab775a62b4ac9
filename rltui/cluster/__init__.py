"""The cluster's side as seen from here: transports that open a byte stream, and the client of the relay at its end."""
