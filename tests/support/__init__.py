"""What tests share: worlds for parts of the product, played clusters, and the contracts that several of them keep."""
