"""Many devices: meshes, shardings and sharded arrays; programs that run once on each device and talk by collectives."""
