// NCCL's and RCCL's ABI over host memory, for ranks that are processes of one machine: data cross in shared memory.
//
// Work is put on a stream by the runtime's hipLaunchHostFunc: that of the CPU runtime, or AMD's over a stand-in device. As in
// NCCL, calls between ncclGroupStart and ncclGroupEnd go on together, work of a dead or late rank is waited for until
// ncclCommAbort, and nothing tells one rank of another's abort. Stricter than NCCL: a send is done when it has been received, work
// of one communicator must not overlap, and what ranks do together must be the same call; else the communicator gets an
// asynchronous error. As NCCL it connects ranks in the first group that needs it, waits for the other one there, and refuses where
// the two do not ask for the same directions. Sums are formed from the last rank to the first, so that they may differ from sums in the ranks' order.
//
// NCCL_ON_CPU_LOG names a file that gets a line for each call but those of data; NCCL_ON_CPU_VERSION is the version told;
// NCCL_ON_CPU_FAILS is the rank whose 50th piece of work ends in an asynchronous error; NCCL_ON_CPU_REFUSES is the rank whose 50th group
// is refused; NCCL_ON_CPU_DIES is the rank that dies when it connects, NCCL_ON_CPU_ABSENT the one that dies in ncclCommInitRank. The
// others' calls fail 0.1 s before, or, on ranks behind it, 0.3 s later when they connect. As in NCCL an abort meanwhile would free what
// the call still uses, and an abort after a failed ncclCommInitRank what that has freed: here both end the process.

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
enum Kind : uint32_t { SEND, RECV, ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER };

constexpr size_t kPart = 1 << 16;
constexpr int kMostRanks = 16;

struct Slot {  // one direction between two ranks, one part at a time
  std::atomic<uint64_t> written, taken;
  uint64_t kind, total, bytes;
  std::atomic<uint64_t> asked;  // what the first asks to be connected for; 0 when the second has seen it
  char data[kPart];
};

struct Shared {
  std::atomic<int> joined, gone;  // how many ranks have come; the one that is about to die, counted from 1
  Slot slots[];
};

struct Comm {
  int ranks, rank;
  Shared* shared;
  std::atomic<int> running{0}, error{SUCCESS}, works{0}, groups{0};
  std::atomic<bool> aborted{false}, destroyed{false}, failing{false};
  std::string said;
  std::vector<uint32_t> connected;  // for each rank a bit per direction and per collective
  Slot& slot(int from, int to) { return shared->slots[from * ranks + to]; }
  void fail(int code, const std::string& why) {
    if (error.exchange(code) == SUCCESS) said = why;
  }
};

struct Call {
  Kind kind;
  const char* source;
  char* target;
  size_t count;
  int type, op, other;  // `other` is the peer, or the root
};

struct Job {
  Comm* comm;
  std::vector<Call> calls;
};

size_t size_of(int type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? sizes[type] : 0;
}

void note(const char* what, int rank) {
  if (const char* path = getenv("NCCL_ON_CPU_LOG")) {
    char line[200];
    const int n = snprintf(line, sizeof line, "%s %d\n", what, rank);
    const int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file >= 0 && write(file, line, n) == n) close(file);
  }
}

// -- moving bytes

struct Move {
  bool sends;
  int other;
  char* at;
  uint64_t total, kind, done = 0;
  bool begun = false, ended = false;
};

void copy(char* to, const char* from, size_t bytes) {
  if (bytes) memcpy(to, from, bytes);
}

// Returns whether a move has come further.
bool advance(Comm& comm, Move& move) {
  Slot& slot = move.sends ? comm.slot(comm.rank, move.other) : comm.slot(move.other, comm.rank);
  const uint64_t written = slot.written.load(std::memory_order_acquire), taken = slot.taken.load(std::memory_order_acquire);
  if (move.sends) {
    if (written != taken) return false;
    if (move.begun && move.done == move.total) return move.ended = true;
    slot.kind = move.kind, slot.total = move.total, slot.bytes = std::min<uint64_t>(kPart, move.total - move.done);
    copy(slot.data, move.at + move.done, slot.bytes);
    move.done += slot.bytes;
    slot.written.store(written + 1, std::memory_order_release);
    return move.begun = true;
  }
  if (written == taken) return false;
  if (slot.kind != move.kind || slot.total != move.total) {
    comm.fail(INVALID_USAGE, "rank " + std::to_string(move.other) + " does something else: " + std::to_string(slot.kind) + " of " +
                                 std::to_string(slot.total) + " bytes, here " + std::to_string(move.kind) + " of " +
                                 std::to_string(move.total));
    return false;
  }
  copy(move.at + move.done, slot.data, slot.bytes);
  move.done += slot.bytes;
  slot.taken.store(taken + 1, std::memory_order_release);
  move.ended = move.done == move.total;
  return true;
}

// All at once; those of one direction between two ranks in their order. Returns whether it came to the end.
bool run(Comm& comm, std::vector<Move>& moves) {
  for (int idle = 0;;) {
    bool moved = false, left = false;
    std::vector<bool> busy(2 * comm.ranks);
    for (Move& move : moves) {
      if (move.ended) continue;
      left = true;
      const int lane = 2 * move.other + move.sends;
      if (!busy[lane]) moved |= advance(comm, move);
      busy[lane] = busy[lane] || !move.ended;
    }
    if (!left) return true;
    if (comm.aborted || comm.error != SUCCESS) return false;
    idle = moved ? 0 : idle + 1;
    if (idle > 100) usleep(50); else if (idle > 10) sched_yield();
  }
}

// -- folding

float widened(uint16_t h, bool brain) {
  uint32_t bits;
  if (brain) {
    bits = uint32_t(h) << 16;
  } else {
    const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, part = h & 1023;
    if (exponent == 0) {
      const float value = part * 5.9604644775390625e-8f;  // 2^-24
      return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | part << 13;
  }
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

uint16_t narrowed(float value, bool brain) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (brain) return (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint16_t sign = bits >> 16 & 0x8000;
  const float size = value < 0 ? -value : value;
  if (!(size == size)) return sign | 0x7e00;
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size < 6.103515625e-5f) {
    const float scaled = size * 16777216.0f;
    uint32_t whole = uint32_t(scaled);
    const float rest = scaled - whole;
    whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
    return sign | whole;
  }
  memcpy(&bits, &size, 4);
  return sign | ((bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
}

template <class T> T folded(T a, T b, int op) {
  switch (op) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return a > b ? a : b;
    default: return a < b ? a : b;
  }
}

template <class T> void fold_as(char* to, const std::vector<char*>& parts, size_t count, int op) {
  for (size_t i = 0; i < count; ++i) {
    T value = reinterpret_cast<T*>(parts.back())[i];
    for (size_t p = parts.size() - 1; p-- > 0;) value = folded(value, reinterpret_cast<T*>(parts[p])[i], op);
    reinterpret_cast<T*>(to)[i] = value;
  }
}

void fold_halves(char* to, const std::vector<char*>& parts, size_t count, int op, bool brain) {
  for (size_t i = 0; i < count; ++i) {
    float value = widened(reinterpret_cast<uint16_t*>(parts.back())[i], brain);
    for (size_t p = parts.size() - 1; p-- > 0;)
      value = folded(value, widened(reinterpret_cast<uint16_t*>(parts[p])[i], brain), op);
    reinterpret_cast<uint16_t*>(to)[i] = narrowed(value, brain);
  }
}

void fold(char* to, const std::vector<char*>& parts, size_t count, int type, int op) {
  switch (type) {
    case 0: return fold_as<int8_t>(to, parts, count, op);
    case 1: return fold_as<uint8_t>(to, parts, count, op);
    case 2: return fold_as<int32_t>(to, parts, count, op);
    case 3: return fold_as<uint32_t>(to, parts, count, op);
    case 4: return fold_as<int64_t>(to, parts, count, op);
    case 5: return fold_as<uint64_t>(to, parts, count, op);
    case 7: return fold_as<float>(to, parts, count, op);
    case 8: return fold_as<double>(to, parts, count, op);
    default: return fold_halves(to, parts, count, op, type == 9);
  }
}

// -- what a stream runs

void together(Comm& comm, const Call& call) {
  const size_t bytes = call.count * size_of(call.type);
  const int me = comm.rank, n = comm.ranks;
  const uint64_t kind = call.kind | uint64_t(call.type) << 8 | uint64_t(call.op) << 16 | uint64_t(call.other) << 24;
  const bool scatters = call.kind == REDUCE_SCATTER, folds = call.kind == ALL_REDUCE || call.kind == REDUCE || scatters;
  const bool sends = call.kind != BROADCAST || me == call.other, gets = call.kind != REDUCE || me == call.other;
  std::vector<char> held(folds && gets ? n * bytes : 0);
  char* const into = call.kind == ALL_GATHER ? call.target : held.data();
  std::vector<Move> moves;
  auto given = [&](int to) { return const_cast<char*>(call.source) + (scatters ? to * bytes : 0); };
  for (int r = 0; r < n; ++r) {
    const bool wanted = call.kind != REDUCE || r == call.other, from = call.kind != BROADCAST || r == call.other;
    if (r != me && sends && wanted) moves.push_back({true, r, given(r), bytes, kind});
    if (r != me && gets && from) moves.push_back({false, r, call.kind == BROADCAST ? call.target : into + r * bytes, bytes, kind});
  }
  if (call.kind == BROADCAST) {
    if (me == call.other && call.target != call.source) copy(call.target, call.source, bytes);
  } else if (gets) {
    copy(into + me * bytes, given(me), bytes);
  }
  if (!run(comm, moves) || !folds || !gets) return;
  std::vector<char*> parts;
  for (int r = 0; r < n; ++r) parts.push_back(held.data() + r * bytes);
  fold(call.target, parts, call.count, call.type, call.op);
}

void on_stream(void* argument) {
  const Job& job = *static_cast<Job*>(argument);
  Comm& comm = *job.comm;
  if (comm.destroyed) {
    fprintf(stderr, "nccl_on_cpu: work of a communicator that was destroyed before it\n");
    _exit(70);
  }
  if (comm.running.fetch_add(1)) comm.fail(INVALID_USAGE, "work of one communicator at the same time");
  const char* const fails = getenv("NCCL_ON_CPU_FAILS");
  if (fails && atoi(fails) == comm.rank && ++comm.works == 50)
    comm.fail(INTERNAL_ERROR, "the link of rank " + std::to_string(comm.rank) + " is down");
  if (!comm.aborted && comm.error == SUCCESS) {
    std::vector<Move> moves;
    for (const Call& call : job.calls)
      if (call.kind <= RECV)
        moves.push_back({call.kind == SEND, call.other, call.kind == SEND ? const_cast<char*>(call.source) : call.target,
                         call.count * size_of(call.type), SEND});
    if (run(comm, moves))
      for (const Call& call : job.calls)
        if (call.kind > RECV && !comm.aborted && comm.error == SUCCESS) together(comm, call);
  }
  comm.running.fetch_sub(1);
}

// -- groups

thread_local int depth = 0;
thread_local int group_error = SUCCESS;
thread_local std::vector<std::pair<std::pair<Comm*, void*>, Call>> group;

using Launch = int (*)(void*, void (*)(void*), void*);

int find(dl_phdr_info* info, size_t, void* found) {
  if (!info->dlpi_name || !*info->dlpi_name) return 0;
  void* library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return 0;
  void* symbol = dlsym(library, "hipLaunchHostFunc");
  dlclose(library);
  if (!symbol) return 0;
  *static_cast<void**>(found) = symbol;
  return strstr(info->dlpi_name, "amdhip64") != nullptr;  // AMD's, where it is there
}

Launch launch_host_func() {
  static void* found = nullptr;
  static std::once_flag once;
  std::call_once(once, [] { dl_iterate_phdr(find, &found); });
  return reinterpret_cast<Launch>(found);
}

// Ends the process if a variable names its rank.
void die_if(const char* variable, Comm& comm) {
  const char* const rank = getenv(variable);
  if (!rank || atoi(rank) != comm.rank) return;
  comm.shared->gone = comm.rank + 1;
  usleep(100000);
  _exit(9);
}

// Connects for what a group needs the first time. Returns the code.
int connect(Comm& comm, const std::vector<Call>& calls) {
  std::vector<uint32_t> wanted(comm.ranks);
  for (const Call& call : calls)
    for (int r = 0; r < comm.ranks; ++r)
      if (r != comm.rank && (call.kind > RECV || r == call.other)) wanted[r] |= (1u << call.kind) & ~comm.connected[r];
  die_if("NCCL_ON_CPU_DIES", comm);
  auto wait = [&](std::atomic<uint64_t>& word, bool set) {
    for (;; usleep(50)) {
      const uint64_t found = word.load();
      if (!found == !set || comm.aborted || comm.shared->gone) return found;
    }
  };
  for (int r = 0; r < comm.ranks; ++r)
    if (wanted[r]) wait(comm.slot(comm.rank, r).asked, false), comm.slot(comm.rank, r).asked = wanted[r];
  for (int r = 0; r < comm.ranks; ++r) {
    if (!wanted[r]) continue;
    const uint32_t theirs = wait(comm.slot(r, comm.rank).asked, true), mirrored = (theirs & ~3u) | (theirs & 1) << 1 | (theirs >> 1 & 1);
    if (comm.aborted) return INTERNAL_ERROR;
    if (const int gone = comm.shared->gone) {
      comm.said = "connection to rank " + std::to_string(gone - 1) + " is closed";
      comm.failing = true;
      if (comm.rank >= gone) usleep(400000);
      comm.failing = false;
      return SYSTEM_ERROR;
    }
    comm.slot(r, comm.rank).asked = 0;
    if (mirrored != wanted[r]) {
      comm.said = "Message truncated : rank " + std::to_string(r) + " asks for " + std::to_string(mirrored) + " instead of " +
                  std::to_string(wanted[r]);
      return INTERNAL_ERROR;
    }
    comm.connected[r] |= wanted[r];
  }
  return SUCCESS;
}

int submit() {
  std::map<std::pair<Comm*, void*>, Job*> jobs;
  for (auto& [where, call] : group) {
    Job*& job = jobs[where];
    if (!job) job = new Job{where.first, {}};  // kept: a graph may hold it
    job->calls.push_back(call);
  }
  group.clear();
  int code = std::exchange(group_error, SUCCESS);
  for (auto& [where, job] : jobs) {
    const char* const refuses = getenv("NCCL_ON_CPU_REFUSES");
    if (refuses && atoi(refuses) == where.first->rank && ++where.first->groups == 50) code = INTERNAL_ERROR;
    if (code == SUCCESS) code = connect(*where.first, job->calls);
    if (code != SUCCESS) break;
    const Launch launch = launch_host_func();
    if (!launch || launch(where.second, on_stream, job) != 0) code = SYSTEM_ERROR;
  }
  return code;
}

int add(Comm* comm, void* stream, Call call) {
  int code = SUCCESS;
  if (!comm || !size_of(call.type) || call.op < 0 || call.op > 3 || call.other < 0 || call.other >= comm->ranks)
    code = INVALID_ARGUMENT;
  else if (comm->destroyed || comm->aborted)
    code = INVALID_USAGE;
  else
    group.push_back({{comm, stream}, call});
  if (code != SUCCESS) group_error = code;
  return depth ? code : submit();
}

}  // namespace

struct ncclUniqueId {
  char internal[128];
};

API int ncclGetVersion(int* version) {
  const char* told = getenv("NCCL_ON_CPU_VERSION");
  *version = told ? atoi(told) : 22803;
  return SUCCESS;
}

API const char* ncclGetErrorString(int code) {
  switch (code) {
    case SUCCESS: return "no error";
    case SYSTEM_ERROR: return "unhandled system error";
    case INVALID_ARGUMENT: return "invalid argument";
    case INVALID_USAGE: return "invalid usage";
    default: return "internal error";
  }
}

API const char* ncclGetLastError(Comm* comm) { return comm ? comm->said.c_str() : ""; }

API int ncclGetUniqueId(ncclUniqueId* id) {
  memset(id, 0, sizeof *id);
  uint64_t number = 0;
  const int file = open("/dev/urandom", O_RDONLY);
  const bool got = file >= 0 && read(file, &number, sizeof number) == sizeof number;
  if (file >= 0) close(file);
  snprintf(id->internal, sizeof id->internal, "/nccl_on_cpu.%d.%016lx", getpid(), static_cast<unsigned long>(number));
  return got ? SUCCESS : SYSTEM_ERROR;
}

API int ncclCommInitRank(Comm** made, int ranks, ncclUniqueId id, int rank) {
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
  const size_t bytes = sizeof(Shared) + sizeof(Slot) * ranks * ranks;
  const int file = shm_open(id.internal, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, bytes) != 0) return SYSTEM_ERROR;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return SYSTEM_ERROR;
  Comm* comm = new Comm;
  comm->ranks = ranks, comm->rank = rank, comm->shared = static_cast<Shared*>(memory);
  comm->connected.resize(ranks);
  *made = comm;
  die_if("NCCL_ON_CPU_ABSENT", *comm);
  comm->shared->joined.fetch_add(1);
  while (comm->shared->joined < ranks && !comm->shared->gone) usleep(200);
  if (rank == 0) shm_unlink(id.internal);
  if (comm->shared->joined < ranks) {
    comm->failing = true;
    return SYSTEM_ERROR;
  }
  note("init", rank);
  return SUCCESS;
}

API int ncclCommGetAsyncError(Comm* comm, int* error) {
  *error = comm->error;
  return SUCCESS;
}

API int ncclCommAbort(Comm* comm) {
  if (comm->failing) {
    fprintf(stderr, "nccl_on_cpu: abort of a communicator while a call of it fails, or after ncclCommInitRank has\n");
    _exit(70);
  }
  comm->aborted = true;
  note("abort", comm->rank);
  return SUCCESS;
}

API int ncclCommDestroy(Comm* comm) {
  while (comm->running) usleep(100);
  comm->destroyed = true;
  note("destroy", comm->rank);
  return SUCCESS;
}

API int ncclGroupStart() {
  ++depth;
  return SUCCESS;
}

API int ncclGroupEnd() {
  if (depth == 0) return INVALID_USAGE;
  return --depth ? SUCCESS : submit();
}

API int ncclSend(const char* source, size_t count, int type, int peer, Comm* comm, void* stream) {
  return add(comm, stream, {SEND, source, nullptr, count, type, 0, peer});
}
API int ncclRecv(char* target, size_t count, int type, int peer, Comm* comm, void* stream) {
  return add(comm, stream, {RECV, nullptr, target, count, type, 0, peer});
}
API int ncclAllReduce(const char* source, char* target, size_t count, int type, int op, Comm* comm, void* stream) {
  return add(comm, stream, {ALL_REDUCE, source, target, count, type, op, 0});
}
API int ncclReduce(const char* source, char* target, size_t count, int type, int op, int root, Comm* comm, void* stream) {
  return add(comm, stream, {REDUCE, source, target, count, type, op, root});
}
API int ncclBroadcast(const char* source, char* target, size_t count, int type, int root, Comm* comm, void* stream) {
  return add(comm, stream, {BROADCAST, source, target, count, type, 0, root});
}
API int ncclAllGather(const char* source, char* target, size_t count, int type, Comm* comm, void* stream) {
  return add(comm, stream, {ALL_GATHER, source, target, count, type, 0, 0});
}
API int ncclReduceScatter(const char* source, char* target, size_t count, int type, int op, Comm* comm, void* stream) {
  return add(comm, stream, {REDUCE_SCATTER, source, target, count, type, op, 0});
}
