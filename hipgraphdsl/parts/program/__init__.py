"""HIP C++ programs: the calls of a backend, written as source lines. Every program contains parts of `program.h`."""
