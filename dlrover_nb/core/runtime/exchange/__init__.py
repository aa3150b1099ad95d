"""What nodes say to each other: requests and answers, their bytes, and the sockets that carry them."""
