// The embedded CPU runtime: a subset of HIP's C API over the threads of this machine, and a few calls named hgcpu*.
//
//   hip_types.h   what HIP's header declares
//   hip_structs.h what of it programs have too
//   base.h        atomics, locks, containers, handles
//   pool.h        workers, work stealing, blocks over many workers, host functions, polled waits
//   block.h       the threads of a block as fibers
//   memory.h      allocations, copies and fills
//   action.h      what one operation does; modules, events, semaphores
//   graph.h       graphs as they are described
//   stream.h      streams, errors, capture
//   exec.h        executables and their launches
//   api_*.h       the exported calls
#include "api_graph.h"
