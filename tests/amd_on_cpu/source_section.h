// The source of a program as an additional section of the code object that it became.
//
// A code object may be written to a file and loaded by another process, so the source must travel inside it. The runtime
// and the compiler's tools skip sections that they do not know.
#pragma once
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace standin {

struct Program {
  std::string source;
  std::vector<std::string> options;                          // -D, -U and -std of the compilation
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
};

namespace source_section {

constexpr char kMagic[] = "amd-on-cpu source";

inline void put(std::string& out, const std::string& text) {
  const uint64_t bytes = text.size();
  out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(text);
}

inline std::string get(const char*& at) {
  uint64_t bytes;
  std::memcpy(&bytes, at, sizeof bytes);
  at += sizeof bytes + bytes;
  return {at - bytes, bytes};
}

inline std::string padded(std::string text) {
  text.resize((text.size() + 7) / 8 * 8);
  return text;
}

// Returns the code object with the program in it: the section and a longer section table are appended.
inline std::string attach(const std::string& object, const Program& program) {
  std::string content(kMagic, sizeof kMagic);
  put(content, program.source);
  put(content, std::to_string(program.options.size()));
  for (const std::string& option : program.options) put(content, option);
  put(content, std::to_string(program.headers.size()));
  for (const auto& [name, text] : program.headers) {
    put(content, name);
    put(content, text);
  }

  std::string out = padded(object);
  Elf64_Ehdr header;
  std::memcpy(&header, out.data(), sizeof header);
  Elf64_Shdr section = {};
  section.sh_type = SHT_PROGBITS;
  section.sh_offset = out.size();
  section.sh_size = content.size();
  section.sh_addralign = 1;
  const std::string table = out.substr(header.e_shoff, size_t(header.e_shnum) * sizeof section);
  out = padded(out + content);
  header.e_shoff = out.size();
  header.e_shnum += 1;
  std::memcpy(out.data(), &header, sizeof header);
  return out + table + std::string(reinterpret_cast<const char*>(&section), sizeof section);
}

inline std::optional<Program> find(const char* object) {
  const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(object);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(object + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    const char* at = object + sections[i].sh_offset;
    if (sections[i].sh_type != SHT_PROGBITS || sections[i].sh_size < sizeof kMagic) continue;
    if (std::memcmp(at, kMagic, sizeof kMagic) != 0) continue;
    at += sizeof kMagic;
    Program program;
    program.source = get(at);
    for (int left = std::stoi(get(at)); left > 0; --left) program.options.push_back(get(at));
    for (int left = std::stoi(get(at)); left > 0; --left) {
      std::string name = get(at);
      program.headers.emplace_back(std::move(name), get(at));
    }
    return program;
  }
  return std::nullopt;
}

}  // namespace source_section
}  // namespace standin
