// A libhiprtc.so in front of AMD's: it puts each program's source into the code object that AMD's compiler makes of it.
// Functions that are not defined here are found in AMD's library, on which this one depends.
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "source_section.h"

namespace {

std::mutex mutex;
std::map<void*, standin::Program> programs;

template <class Function>
Function amds(const char* name) {
  static void* library = dlopen("libhiprtc.so.7", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(dlsym(library, name));
}

// Returns the code object with its source, or an empty string and AMD's error code.
std::string code_with_source(void* program, int& status) {
  size_t bytes = 0;
  status = amds<int (*)(void*, size_t*)>("hiprtcGetCodeSize")(program, &bytes);
  if (status != 0 || bytes == 0) return {};
  std::string code(bytes, '\0');
  status = amds<int (*)(void*, char*)>("hiprtcGetCode")(program, code.data());
  if (status != 0 || code.compare(0, SELFMAG, ELFMAG) != 0) return code;
  std::lock_guard lock(mutex);
  return standin::source_section::attach(code, programs[program]);
}

}  // namespace

extern "C" int hiprtcCreateProgram(
    void** program, const char* source, const char* name, int count, const char* const* texts, const char* const* names) {
  const int status = amds<decltype(&hiprtcCreateProgram)>("hiprtcCreateProgram")(program, source, name, count, texts, names);
  if (status == 0) {
    standin::Program kept{source, {}, {}};
    for (int i = 0; i < count; ++i) kept.headers.emplace_back(names[i], texts[i]);
    std::lock_guard lock(mutex);
    programs[*program] = std::move(kept);
  }
  return status;
}

extern "C" int hiprtcCompileProgram(void* program, int count, const char** options) {
  {
    std::lock_guard lock(mutex);
    auto& kept = programs[program].options;
    kept.clear();
    for (int i = 0; i < count; ++i) {
      const std::string option = options[i];
      if (option.rfind("-D", 0) == 0 || option.rfind("-U", 0) == 0 || option.rfind("-std=", 0) == 0) kept.push_back(option);
    }
  }
  return amds<decltype(&hiprtcCompileProgram)>("hiprtcCompileProgram")(program, count, options);
}

extern "C" int hiprtcGetCodeSize(void* program, size_t* bytes) {
  int status = 0;
  *bytes = code_with_source(program, status).size();
  return status;
}

extern "C" int hiprtcGetCode(void* program, char* code) {
  int status = 0;
  const std::string whole = code_with_source(program, status);
  whole.copy(code, whole.size());
  return status;
}

extern "C" int hiprtcDestroyProgram(void** program) {
  {
    std::lock_guard lock(mutex);
    programs.erase(*program);
  }
  return amds<decltype(&hiprtcDestroyProgram)>("hiprtcDestroyProgram")(program);
}
