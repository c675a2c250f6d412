// Code objects: loaded as the runtime asks, their kernels executed by a host build of the source that they carry.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <vector>

#include "source_section.h"
#include "standin.h"

namespace {

using standin::answer;

// AMDGPU relocations (LLVM's user guide for the AMDGPU back end).
constexpr uint32_t kAbs64 = 3;
constexpr uint32_t kRelative64 = 13;

// As host_kernels.h declares it.
struct Launch {
  unsigned blocks[3];
  unsigned threads[3];
  unsigned wave_size;
};
using HostKernel = void (*)(const uint8_t* arguments, const Launch* launch);

struct Symbol {
  std::string name;
  bool is_kernel;
  uint8_t* address;
  uint32_t bytes;
};

struct Executable {
  std::map<std::string, void*> defined_outside;
  std::vector<std::unique_ptr<Symbol>> symbols;
  std::vector<void*> memory;
  std::optional<standin::Program> program;
  // The host builds that were made of the program: one of all kernels, or one for each where that does not compile.
  std::set<void*> libraries;
  std::map<std::string, HostKernel> host_kernels;
  std::map<std::string, std::string> failures;  // why a kernel has no host build
};

struct Loaded {
  std::string name;
  Executable* executable;
  hsa_agent_t agent;
};

std::mutex kernels_mutex;
std::map<uint64_t, Loaded> kernels;  // by the address of the descriptor, which a dispatch packet names

// Kernels run one after the other: the host build has one set of indices and of shared memory.
std::mutex run_mutex;

Executable* executable_of(hsa_executable_t handle) { return reinterpret_cast<Executable*>(handle.handle); }

// A kernel that does not run makes every result after it wrong, so it must not go unnoticed: the name goes into the file
// AMD_ON_CPU_SKIPPED, which `run` looks at in the end; without one the process stops.
void skipped(const std::string& kernel, const std::string& why) {
  std::fprintf(stderr, "[stand-in] kernel %s was not run: %s\n", kernel.c_str(), why.c_str());
  const char* list = std::getenv("AMD_ON_CPU_SKIPPED");
  FILE* file = list ? std::fopen(list, "a") : nullptr;
  if (!file) std::abort();
  std::fprintf(file, "%s: %s\n", kernel.c_str(), why.substr(0, why.find('\n')).c_str());
  std::fclose(file);
}

// ---- the host build --------------------------------------------------------------------------------------------------
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

void write_file(const std::string& path, const std::string& text) {
  if (FILE* file = std::fopen(path.c_str(), "wb")) {
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
}

std::string read_file(const std::string& path) {
  std::string text;
  if (FILE* file = std::fopen(path.c_str(), "rb")) {
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, n);
    std::fclose(file);
  }
  return text;
}

// "_ZN1m4fillIfEEvPT_" -> "static_cast<void (*)(float*)>(&::m::fill<float>)"; names of extern "C" stay as they are.
std::string expression_for(const std::string& symbol) {
  // Without this test a kernel that is called "h" would be taken for the type that "h" stands for.
  if (symbol.rfind("_Z", 0) != 0) return "&::" + symbol;
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  if (!text) return "&::" + symbol;
  std::string name = text.get();
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  size_t depth = 0, open = std::string::npos;
  for (size_t i = 0; i < name.size() && open == std::string::npos; ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) open = i;
  }
  return "static_cast<void (*)" + name.substr(open) + ">(&::" + name.substr(0, open) + ")";
}

std::string host_source(const Executable& executable, const std::vector<std::string>& names) {
  const standin::Program& program = *executable.program;
  static const std::regex dynamic_shared(R"(extern\s+__shared__\s+([^;]*?)(\w+)\s*\[\s*\]\s*;)");
  const std::string source = std::regex_replace(
      program.source, dynamic_shared, "auto* const $2 = reinterpret_cast<$1*>(standin::dynamic_shared);");
  static const std::regex needs_fibers(R"(\b(__syncthreads|__shfl|__ballot|__any|__all|__activemask|__lane_id))");
  bool fibers = std::regex_search(source, needs_fibers);
  for (const auto& [name, text] : program.headers) fibers = fibers || std::regex_search(text, needs_fibers);

  std::string out = "#define STANDIN_FIBERS " + std::to_string(int(fibers)) + "\n#include \"host_kernels.h\"\n";
  out += "#line 1 \"kernel.hip\"\n" + source + "\n#line 1 \"entries\"\n";
  for (size_t i = 0; i < names.size(); ++i) {
    out += "STANDIN_KERNEL(standin_kernel_" + std::to_string(i) + ", (" + expression_for(names[i]) + "))\n";
  }
  return out;
}

int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Builds the kernels of these names into one library, or takes it from the cache; an empty string means success.
std::string build(Executable& executable, const std::vector<std::string>& names) {
  const char* home = std::getenv("AMD_ON_CPU_HOME");
  const std::string root = home ? home : ".";
  std::string options;
  for (const std::string& option : executable.program->options) {
    if (option.rfind("-std=", 0) != 0) options += " '" + option + "'";
  }
  const std::string text = host_source(executable, names);
  std::string key = text + options + read_file(root + "/host_kernels.h");
  for (const auto& [name, header] : executable.program->headers) key += name + header;
  char number[17];
  std::snprintf(number, sizeof number, "%016lx", hash_of(key));
  const std::string base = root + "/built/" + number;
  const std::string library = base + ".so";
  if (access(library.c_str(), R_OK) != 0) {
    const std::string mine = base + "." + std::to_string(getpid());
    shell("mkdir -p '" + mine + ".include'");
    write_file(mine + ".cpp", text);
    for (const auto& [name, header] : executable.program->headers) write_file(mine + ".include/" + name, header);
    const std::string compile = "unset LD_PRELOAD LD_LIBRARY_PATH; g++ -O2 -std=c++20 -shared -fPIC -w -fno-gnu-unique" + options +
                                " -Wl,-Bsymbolic -I'" + mine + ".include' -I'" + root + "' -I'" + root + "/include' -o '" + mine +
                                ".so' '" + mine + ".cpp' 2>'" + mine + ".log'";
    const int status = shell(compile);
    const std::string log = read_file(mine + ".log");
    if (status == 0) std::rename((mine + ".so").c_str(), library.c_str());
    shell("rm -rf '" + mine + ".include' '" + mine + ".cpp' '" + mine + ".log'");
    if (status != 0) return "its host build fails:\n" + log.substr(0, 2000);
  }
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return std::string("its host build cannot be loaded: ") + dlerror();
  executable.libraries.insert(handle);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string entry = "standin_kernel_" + std::to_string(i);
    executable.host_kernels[names[i]] = reinterpret_cast<HostKernel>(dlsym(handle, entry.c_str()));
  }
  return {};
}

std::string build_for(Executable& executable, const std::string& kernel) {
  if (!executable.program) return "the code object has no source in it; it was not compiled by this libhiprtc";
  std::vector<std::string> all;
  for (const auto& symbol : executable.symbols) {
    if (symbol->is_kernel) all.push_back(symbol->name.substr(0, symbol->name.size() - 3));
  }
  const std::string error = build(executable, all);
  return error.empty() || all.size() == 1 ? error : build(executable, {kernel});
}

// __device__ and __constant__ variables live in device memory; the host build has copies of its own.
class Variables {
 public:
  explicit Variables(const Executable& executable) {
    for (void* library : executable.libraries) {
      for (const auto& symbol : executable.symbols) {
        if (symbol->is_kernel) continue;
        if (void* host = dlsym(library, symbol->name.c_str())) {
          std::memcpy(host, symbol->address, symbol->bytes);
          auto* bytes = static_cast<uint8_t*>(host);
          loaded_.push_back({symbol->address, bytes, {bytes, bytes + symbol->bytes}});
        }
      }
    }
  }

  // A kernel writes only what it changes, as on a device: other bytes may meanwhile have been written by a copy or through
  // another library, and must stay.
  ~Variables() {
    for (const Variable& variable : loaded_) {
      for (size_t i = 0; i < variable.before.size(); ++i) {
        if (variable.host[i] != variable.before[i]) variable.device[i] = variable.host[i];
      }
    }
  }

 private:
  struct Variable {
    uint8_t* device;
    uint8_t* host;
    std::vector<uint8_t> before;
  };
  std::vector<Variable> loaded_;
};

// ---- kernels that the runtime itself brings, as OpenCL source that calls into AMD's device library -------------------------
// Their arguments are read from the same places and they write the same bytes, threads beyond the grid included.
class BuiltIn {
 public:
  BuiltIn(const std::string& name, const hsa_kernel_dispatch_packet_t& packet)
      : name_(name), packet_(packet), arguments_(static_cast<const uint8_t*>(packet.kernarg_address)) {}

  bool run() const {
    if (name_ == "__amd_rocclr_copyBuffer") {
      std::memmove(pointer(8), pointer(0), number(16));
    } else if (name_ == "__amd_rocclr_copyBufferAligned") {
      const size_t unit = at<uint32_t>(40) == 16 ? 16 : 4;
      std::memmove(pointer(8) + unit * number(24), pointer(0) + unit * number(16), unit * number(32));
    } else if (name_ == "__amd_rocclr_copyBufferRect") {
      copy_rect(1);
    } else if (name_ == "__amd_rocclr_copyBufferRectAligned") {
      copy_rect(number(120) == 16 ? 16 : 4);
    } else if (name_ == "__amd_rocclr_fillBufferAligned") {
      const size_t pattern = size_t(at<uint32_t>(16)) * at<uint32_t>(20);
      for (uint8_t* to = pointer(0); to < pointer(24); to += pattern) std::memcpy(to, pointer(8), pattern);
    } else if (name_ == "__amd_rocclr_fillBufferAligned2D") {
      fill_rect();
    } else if (name_ == "__amd_rocclr_streamOpsWrite") {
      store(pointer(0) ? pointer(0) : pointer(8), pointer(0) ? 4 : 8, number(16));
    } else if (name_ == "__amd_rocclr_streamOpsWait") {
      wait(pointer(0) ? pointer(0) : pointer(8), pointer(0) ? 4 : 8, number(16), number(24), number(32));
    } else if (name_ == "__amd_rocclr_batchMemOp") {
      for (uint32_t i = 0; i < at<uint32_t>(8); ++i) memory_operation(pointer(0) + size_t(i) * 48);
    } else {
      return name_ == "__amd_rocclr_initHeap" || name_ == "__amd_rocclr_gwsInit";
    }
    return true;
  }

 private:
  template <class T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, arguments_ + offset, sizeof value);
    return value;
  }
  uint8_t* pointer(size_t offset) const { return at<uint8_t*>(offset); }
  uint64_t number(size_t offset) const { return at<uint64_t>(offset); }

  // A rectangle is (row pitch, slice pitch, start), in units of what one thread copies.
  void copy_rect(size_t unit) const {
    const auto source = at<std::array<uint64_t, 3>>(32), target = at<std::array<uint64_t, 3>>(64);
    const auto size = at<std::array<uint64_t, 3>>(96);
    for (uint64_t z = 0; z < size[2]; ++z) {
      for (uint64_t y = 0; y < size[1]; ++y) {
        std::memcpy(pointer(8) + unit * (target[2] + y * target[0] + z * target[1]),
                    pointer(0) + unit * (source[2] + y * source[0] + z * source[1]), unit * size[0]);
      }
    }
  }

  // One of the first four arguments is not null, and says how many bytes an element has.
  void fill_rect() const {
    size_t width_log = 0;
    while (!pointer(width_log * 8)) ++width_log;
    const size_t unit = size_t{1} << width_log, pattern = at<uint32_t>(40) * unit;
    const uint64_t columns = std::min<uint64_t>(number(56), packet_.grid_size_x);
    const uint64_t rows = std::min<uint64_t>(number(64), packet_.grid_size_y);
    STANDIN_LOG(1, "fill of %lu rows of %lu threads, grid %u", rows, columns, packet_.grid_size_x);
    for (uint64_t y = 0; y < rows; ++y) {
      for (uint64_t x = 0; x < columns; ++x) {
        std::memcpy(pointer(width_log * 8) + unit * (number(48) + y * number(72) + x), pointer(32), pattern);
      }
    }
  }

  static void store(uint8_t* to, size_t bytes, uint64_t value) {
    if (bytes == 4) {
      __atomic_store_n(reinterpret_cast<uint32_t*>(to), uint32_t(value), __ATOMIC_SEQ_CST);
    } else {
      __atomic_store_n(reinterpret_cast<uint64_t*>(to), value, __ATOMIC_SEQ_CST);
    }
  }

  static uint64_t load(const uint8_t* from, size_t bytes) {
    return bytes == 4 ? __atomic_load_n(reinterpret_cast<const uint32_t*>(from), __ATOMIC_SEQ_CST)
                      : __atomic_load_n(reinterpret_cast<const uint64_t*>(from), __ATOMIC_SEQ_CST);
  }

  static void wait(const uint8_t* from, size_t bytes, uint64_t compared, uint64_t condition, uint64_t mask) {
    for (;;) {
      const uint64_t value = load(from, bytes) & mask;
      const bool met = condition == 0   ? value >= compared
                       : condition == 1 ? value == compared
                       : condition == 2 ? (value & compared) != 0
                                        : ((value | compared) & mask) != mask;
      if (met) return;
      usleep(20);
    }
  }

  // hipStreamBatchMemOpParams: operation, address, value, flags.
  static void memory_operation(const uint8_t* operation) {
    uint32_t kind, flags;
    uint8_t* address;
    uint64_t value;
    std::memcpy(&kind, operation, 4);
    std::memcpy(&address, operation + 8, 8);
    std::memcpy(&value, operation + 16, 8);
    std::memcpy(&flags, operation + 24, 4);
    const size_t bytes = kind == 4 || kind == 5 ? 8 : 4;
    if (bytes == 4) value = uint32_t(value);
    if (kind == 2 || kind == 5) store(address, bytes, value);
    if (kind == 1 || kind == 4) wait(address, bytes, value, flags, ~uint64_t{0});
  }

  const std::string& name_;
  const hsa_kernel_dispatch_packet_t& packet_;
  const uint8_t* arguments_;
};

}  // namespace

namespace standin {

void run_kernel(const hsa_kernel_dispatch_packet_t& packet, hsa_agent_t agent) {
  Loaded loaded;
  {
    std::lock_guard lock(kernels_mutex);
    const auto found = kernels.find(packet.kernel_object);
    if (found == kernels.end()) return skipped("?", "the dispatch names no kernel of a loaded code object");
    loaded = found->second;
  }
  // A device cannot fetch instructions from the memory of another, which is not mapped for it.
  if (loaded.agent.handle != agent.handle) return skipped(loaded.name, "it was dispatched to a device that it is not loaded on");
  if (BuiltIn(loaded.name, packet).run()) {
    STANDIN_LOG(1, "dispatch of %s, the runtime's own", loaded.name.c_str());
    return;
  }
  std::lock_guard lock(run_mutex);
  auto& host_kernels = loaded.executable->host_kernels;
  if (host_kernels.find(loaded.name) == host_kernels.end()) {
    auto& failures = loaded.executable->failures;
    if (failures.find(loaded.name) == failures.end()) failures[loaded.name] = build_for(*loaded.executable, loaded.name);
    if (!failures[loaded.name].empty()) return skipped(loaded.name, failures[loaded.name]);
  }
  Launch launch = {{}, {packet.workgroup_size_x, packet.workgroup_size_y, packet.workgroup_size_z}, wave_size()};
  const uint32_t grid[3] = {packet.grid_size_x, packet.grid_size_y, packet.grid_size_z};
  for (int axis = 0; axis < 3; ++axis) launch.blocks[axis] = (grid[axis] + launch.threads[axis] - 1) / launch.threads[axis];
  STANDIN_LOG(1, "dispatch of %s, %ux%ux%u blocks of %ux%ux%u threads", loaded.name.c_str(), launch.blocks[0],
              launch.blocks[1], launch.blocks[2], launch.threads[0], launch.threads[1], launch.threads[2]);
  Variables variables(*loaded.executable);
  host_kernels[loaded.name](static_cast<const uint8_t*>(packet.kernarg_address), &launch);
}

}  // namespace standin

// ---- loading -------------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_code_object_reader_create_from_memory(
    const void* image, size_t bytes, hsa_code_object_reader_t* reader) {
  // The runtime may free the image before it loads what was read.
  reader->handle = uint64_t(new std::string(static_cast<const char*>(image), bytes));
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
  delete reinterpret_cast<std::string*>(reader.handle);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_executable_create_alt(
    hsa_profile_t, hsa_default_float_rounding_mode_t, const char*, hsa_executable_t* executable) {
  executable->handle = uint64_t(new Executable);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_executable_destroy(hsa_executable_t handle) {
  Executable* executable = executable_of(handle);
  {
    std::lock_guard lock(kernels_mutex);
    for (const auto& symbol : executable->symbols) kernels.erase(uint64_t(symbol->address));
  }
  std::lock_guard lock(run_mutex);
  for (void* library : executable->libraries) dlclose(library);
  for (void* memory : executable->memory) standin::free_memory(memory);
  delete executable;
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_executable_freeze(hsa_executable_t, const char*) { return HSA_STATUS_SUCCESS; }

HSA_EXPORT hsa_status_t hsa_executable_agent_global_variable_define(
    hsa_executable_t executable, hsa_agent_t, const char* name, void* address) {
  executable_of(executable)->defined_outside[name] = address;
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_executable_load_agent_code_object(
    hsa_executable_t handle, hsa_agent_t agent, hsa_code_object_reader_t reader, const char*, hsa_loaded_code_object_t* loaded) {
  Executable& executable = *executable_of(handle);
  const std::string& image = *reinterpret_cast<std::string*>(reader.handle);
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image.data());
  if (image.size() < sizeof *header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
    return HSA_STATUS_ERROR_INVALID_CODE_OBJECT;
  }
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(image.data() + header->e_phoff);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image.data() + header->e_shoff);

  uint64_t extent = 0;
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type == PT_LOAD) extent = std::max(extent, segments[i].p_vaddr + segments[i].p_memsz);
  }
  auto* base = static_cast<uint8_t*>(standin::allocate_device_memory(extent));
  executable.memory.push_back(base);
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_LOAD) continue;
    std::memcpy(base + segments[i].p_vaddr, image.data() + segments[i].p_offset, segments[i].p_filesz);
  }

  const Elf64_Sym* symbols = nullptr;
  const char* names = nullptr;
  size_t count = 0;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    symbols = reinterpret_cast<const Elf64_Sym*>(image.data() + sections[i].sh_offset);
    count = sections[i].sh_size / sizeof *symbols;
    names = image.data() + sections[sections[i].sh_link].sh_offset;
  }

  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_RELA) continue;
    const auto* entries = reinterpret_cast<const Elf64_Rela*>(image.data() + sections[i].sh_offset);
    for (size_t k = 0; k < sections[i].sh_size / sizeof *entries; ++k) {
      const uint32_t type = ELF64_R_TYPE(entries[k].r_info), symbol = ELF64_R_SYM(entries[k].r_info);
      uint64_t value = uint64_t(entries[k].r_addend);
      if (type == kRelative64) {
        value += uint64_t(base);
      } else if (type == kAbs64 && symbol < count) {
        const auto outside = executable.defined_outside.find(names + symbols[symbol].st_name);
        if (symbols[symbol].st_shndx != SHN_UNDEF) {
          value += uint64_t(base) + symbols[symbol].st_value;
        } else if (outside != executable.defined_outside.end()) {
          value += uint64_t(outside->second);
        }
      } else {
        STANDIN_LOG(1, "relocation of type %u is not known", type);
        continue;
      }
      std::memcpy(base + entries[k].r_offset, &value, sizeof value);
    }
  }

  for (size_t i = 1; i < count; ++i) {
    if (symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC) continue;
    const std::string name = names + symbols[i].st_name;
    const bool is_kernel = name.size() > 3 && name.compare(name.size() - 3, 3, ".kd") == 0;
    if (!is_kernel && ELF64_ST_TYPE(symbols[i].st_info) != STT_OBJECT) continue;
    auto* address = base + symbols[i].st_value;
    executable.symbols.push_back(std::make_unique<Symbol>(Symbol{name, is_kernel, address, uint32_t(symbols[i].st_size)}));
    if (is_kernel) {
      std::lock_guard lock(kernels_mutex);
      kernels[uint64_t(address)] = {name.substr(0, name.size() - 3), &executable, agent};
    }
    STANDIN_LOG(2, "loaded %s at %p", name.c_str(), static_cast<void*>(address));
  }
  if (auto program = standin::source_section::find(image.data())) executable.program = std::move(program);
  if (loaded) loaded->handle = uint64_t(base);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_executable_get_symbol_by_name(
    hsa_executable_t executable, const char* name, const hsa_agent_t*, hsa_executable_symbol_t* symbol) {
  for (const auto& known : executable_of(executable)->symbols) {
    if (known->name == name) {
      symbol->handle = uint64_t(known.get());
      return HSA_STATUS_SUCCESS;
    }
  }
  return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
}

HSA_EXPORT hsa_status_t hsa_executable_symbol_get_info(
    hsa_executable_symbol_t handle, hsa_executable_symbol_info_t what, void* value) {
  const auto& symbol = *reinterpret_cast<const Symbol*>(handle.handle);
  // A kernel descriptor begins with the bytes of its group, private and argument segments.
  const auto* descriptor = reinterpret_cast<const uint32_t*>(symbol.address);
  switch (int(what)) {
    case HSA_EXECUTABLE_SYMBOL_INFO_TYPE:
      return answer<uint32_t>(value, symbol.is_kernel ? HSA_SYMBOL_KIND_KERNEL : HSA_SYMBOL_KIND_VARIABLE);
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH: return answer<uint32_t>(value, uint32_t(symbol.name.size()));
    case HSA_EXECUTABLE_SYMBOL_INFO_NAME:
      std::memcpy(value, symbol.name.data(), symbol.name.size());
      return HSA_STATUS_SUCCESS;
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT:
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS: return answer<uint64_t>(value, uint64_t(symbol.address));
    case HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE: return answer<uint32_t>(value, symbol.bytes);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE: return answer<uint32_t>(value, descriptor[0]);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE: return answer<uint32_t>(value, descriptor[1]);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE: return answer<uint32_t>(value, descriptor[2]);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_ALIGNMENT: return answer<uint32_t>(value, 16);
    case HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_DYNAMIC_CALLSTACK: return answer<bool>(value, false);
  }
  STANDIN_LOG(1, "hsa_executable_symbol_get_info: no answer to %u", unsigned(what));
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}
