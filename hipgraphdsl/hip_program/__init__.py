"""HIP C++ programs: the calls of a backend, written as lines. Every program includes `program.h`."""
