// The machine that the stand-in shows: one CPU, some GPUs (AMD_ON_CPU_DEVICES, of AMD_ON_CPU_ARCHITECTURE), their memory.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "standin.h"

namespace {

using standin::answer;

constexpr size_t kPage = 4096;
constexpr size_t kMemoryBytes = size_t{8} << 30;
constexpr uint64_t kCpuAgent = 0x1000;  // GPU i is 0x1001 + i
constexpr uint64_t kIsa = 0x3001;

// A pool's handle is its kind and, in the upper half, the number of its GPU.
enum PoolKind : uint64_t { kHostFine = 0x2001, kHostKernarg, kHostCoarse, kDeviceCoarse, kDeviceFine, kDeviceGroup };

PoolKind kind_of(hsa_amd_memory_pool_t pool) { return PoolKind(pool.handle & 0xffffffff); }
hsa_agent_t owner_of(hsa_amd_memory_pool_t pool) {
  return {kind_of(pool) >= kDeviceCoarse ? kCpuAgent + 1 + (pool.handle >> 32) : kCpuAgent};
}

uint64_t device_count() {
  static const uint64_t count = [] {
    const char* text = std::getenv("AMD_ON_CPU_DEVICES");
    return uint64_t(std::clamp(text ? std::atoi(text) : 1, 0, 8));
  }();
  return count;
}

const std::string& architecture() {
  static const std::string name = [] {
    const char* text = std::getenv("AMD_ON_CPU_ARCHITECTURE");
    return std::string(text ? text : "gfx942");
  }();
  return name;
}

std::string isa_name() {
  const bool has_features = architecture() == "gfx942" || architecture() == "gfx90a";
  return "amdgcn-amd-amdhsa--" + architecture() + (has_features ? ":sramecc+:xnack-" : "");
}

uint32_t flags_of(hsa_amd_memory_pool_t pool) {
  switch (kind_of(pool)) {
    case kHostFine:
    case kDeviceFine:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED;
    case kHostKernarg:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED | HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT;
    case kHostCoarse:
    case kDeviceCoarse:
      return HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED;
    default:
      return 0;
  }
}

template <size_t kSize>
hsa_status_t answer_text(void* where, const std::string& text) {
  char buffer[kSize] = {};
  text.copy(buffer, kSize - 1);
  std::memcpy(where, buffer, kSize);
  return HSA_STATUS_SUCCESS;
}

// ---- memory that exists, by address --------------------------------------------------------------------------------
struct Block {
  size_t bytes;
  hsa_amd_memory_pool_t pool;
  bool locked;  // the caller's own memory, made known by hsa_amd_memory_lock
};

std::mutex memory_mutex;
std::map<uintptr_t, Block> memory;

void remember(void* address, Block block) {
  std::lock_guard lock(memory_mutex);
  memory[uintptr_t(address)] = block;
}

// ---- virtual memory, backed by memory files -------------------------------------------------------------------------
struct VirtualHandle {
  int file;
  hsa_amd_memory_pool_t pool;
};
std::map<uintptr_t, VirtualHandle*> mapped;

}  // namespace

namespace standin {

unsigned wave_size() { return architecture().rfind("gfx9", 0) == 0 ? 64 : 32; }

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000 + uint64_t(t.tv_nsec);
}

void jitter() {
  static const int most = std::getenv("AMD_ON_CPU_JITTER_US") ? std::atoi(std::getenv("AMD_ON_CPU_JITTER_US")) : 0;
  if (most <= 0) return;
  thread_local std::minstd_rand random{unsigned(now_ns())};
  usleep(random() % unsigned(most + 1));
}

void* allocate_device_memory(size_t bytes) {
  void* address = nullptr;
  hsa_amd_memory_pool_allocate({kDeviceCoarse}, bytes, 0, &address);
  return address;
}

void free_memory(void* address) { hsa_amd_memory_pool_free(address); }

}  // namespace standin

// ---- system --------------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_init() { return HSA_STATUS_SUCCESS; }
HSA_EXPORT hsa_status_t hsa_shut_down() { return HSA_STATUS_SUCCESS; }

HSA_EXPORT hsa_status_t hsa_status_string(hsa_status_t status, const char** text) {
  *text = status == HSA_STATUS_SUCCESS ? "success" : "an error of the stand-in";
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_system_get_info(hsa_system_info_t what, void* value) {
  switch (int(what)) {
    case HSA_SYSTEM_INFO_VERSION_MAJOR: return answer<uint16_t>(value, 1);
    case HSA_SYSTEM_INFO_VERSION_MINOR: return answer<uint16_t>(value, 18);
    case HSA_SYSTEM_INFO_TIMESTAMP: return answer<uint64_t>(value, standin::now_ns());
    case HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY: return answer<uint64_t>(value, 1000000000);
    case HSA_SYSTEM_INFO_SIGNAL_MAX_WAIT: return answer<uint64_t>(value, UINT64_MAX);
    case HSA_AMD_SYSTEM_INFO_SVM_SUPPORTED:
    case HSA_AMD_SYSTEM_INFO_SVM_ACCESSIBLE_BY_DEFAULT:
    case HSA_AMD_SYSTEM_INFO_MWAITX_ENABLED:
    case HSA_AMD_SYSTEM_INFO_DMABUF_SUPPORTED:
    case HSA_AMD_SYSTEM_INFO_XNACK_ENABLED: return answer<bool>(value, false);
    case HSA_AMD_SYSTEM_INFO_VIRTUAL_MEM_API_SUPPORTED: return answer<bool>(value, true);
  }
  STANDIN_LOG(1, "hsa_system_get_info: no answer to 0x%x", unsigned(what));
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

namespace {
hsa_status_t query_host_address(const void* device, const void** host) {
  *host = device;
  return HSA_STATUS_SUCCESS;
}
}  // namespace

HSA_EXPORT hsa_status_t hsa_system_get_major_extension_table(uint16_t extension, uint16_t, size_t bytes, void* table) {
  std::memset(table, 0, bytes);
  if (extension == HSA_EXTENSION_AMD_LOADER && bytes >= sizeof(void*)) {
    static_cast<hsa_ven_amd_loader_1_00_pfn_t*>(table)->hsa_ven_amd_loader_query_host_address = query_host_address;
  }
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t, void*) {
  return HSA_STATUS_SUCCESS;
}
HSA_EXPORT hsa_status_t hsa_amd_coherency_set_type(hsa_agent_t, hsa_amd_coherency_type_t) { return HSA_STATUS_SUCCESS; }
HSA_EXPORT hsa_status_t hsa_amd_enable_logging(uint8_t*, void*) { return HSA_STATUS_SUCCESS; }
HSA_EXPORT hsa_status_t hsa_amd_agent_set_async_scratch_limit(hsa_agent_t, size_t) { return HSA_STATUS_SUCCESS; }

// ---- agents --------------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_iterate_agents(hsa_status_t (*visit)(hsa_agent_t, void*), void* data) {
  for (uint64_t number = 0; number <= device_count(); ++number) {
    if (hsa_status_t status = visit({kCpuAgent + number}, data); status != HSA_STATUS_SUCCESS) return status;
  }
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_agent_iterate_isas(hsa_agent_t, hsa_status_t (*visit)(hsa_isa_t, void*), void* data) {
  return visit({kIsa}, data);
}

HSA_EXPORT hsa_status_t hsa_isa_get_info_alt(hsa_isa_t, hsa_isa_info_t what, void* value) {
  const std::string name = isa_name();
  if (what == HSA_ISA_INFO_NAME_LENGTH) return answer<uint32_t>(value, uint32_t(name.size() + 1));
  if (what == HSA_ISA_INFO_NAME) {
    std::memcpy(value, name.c_str(), name.size() + 1);
    return HSA_STATUS_SUCCESS;
  }
  STANDIN_LOG(1, "hsa_isa_get_info_alt: no answer to %u", unsigned(what));
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

HSA_EXPORT hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t what, void* value) {
  const uint32_t node = uint32_t(agent.handle - kCpuAgent);
  const bool gpu = node != 0;
  switch (int(what)) {
    case HSA_AGENT_INFO_NAME: return answer_text<64>(value, gpu ? architecture() : "host");
    case HSA_AGENT_INFO_VENDOR_NAME: return answer_text<64>(value, "AMD");
    case HSA_AMD_AGENT_INFO_PRODUCT_NAME: return answer_text<64>(value, "AMD on CPU (stand-in, no GPU)");
    case HSA_AMD_AGENT_INFO_UUID: return answer_text<21>(value, "GPU-00000000000000" + std::to_string(10 + node));
    case HSA_AGENT_INFO_DEVICE: return answer<uint32_t>(value, gpu ? HSA_DEVICE_TYPE_GPU : HSA_DEVICE_TYPE_CPU);
    case HSA_AGENT_INFO_FEATURE:
      return answer<uint32_t>(value, gpu ? HSA_AGENT_FEATURE_KERNEL_DISPATCH : HSA_AGENT_FEATURE_AGENT_DISPATCH);
    case HSA_AGENT_INFO_PROFILE: return answer<uint32_t>(value, HSA_PROFILE_BASE);
    case HSA_AGENT_INFO_WAVEFRONT_SIZE: return answer<uint32_t>(value, standin::wave_size());
    case HSA_AGENT_INFO_WORKGROUP_MAX_DIM: {
      const uint16_t most[3] = {1024, 1024, 1024};
      std::memcpy(value, most, sizeof most);
      return HSA_STATUS_SUCCESS;
    }
    case HSA_AGENT_INFO_WORKGROUP_MAX_SIZE: return answer<uint32_t>(value, 1024);
    case HSA_AGENT_INFO_GRID_MAX_DIM: return answer(value, hsa_dim3_t{~0u, ~0u, ~0u});
    case HSA_AGENT_INFO_GRID_MAX_SIZE: return answer<uint32_t>(value, ~0u);
    case HSA_AGENT_INFO_QUEUES_MAX: return answer<uint32_t>(value, 128);
    case HSA_AGENT_INFO_QUEUE_MIN_SIZE: return answer<uint32_t>(value, 64);
    case HSA_AGENT_INFO_QUEUE_MAX_SIZE: return answer<uint32_t>(value, 131072);
    case HSA_AGENT_INFO_QUEUE_TYPE: return answer<uint32_t>(value, HSA_QUEUE_TYPE_MULTI);
    case HSA_AGENT_INFO_NODE:
    case HSA_AMD_AGENT_INFO_DRIVER_NODE_ID: return answer<uint32_t>(value, node);
    case HSA_AMD_AGENT_INFO_DRIVER_UID: return answer<uint32_t>(value, node);
    case HSA_AGENT_INFO_CACHE_SIZE: {
      const uint32_t sizes[4] = {32 << 10, 4 << 20, 0, 0};
      std::memcpy(value, sizes, sizeof sizes);
      return HSA_STATUS_SUCCESS;
    }
    case HSA_AGENT_INFO_ISA: return answer<uint64_t>(value, kIsa);
    case HSA_AGENT_INFO_EXTENSIONS: std::memset(value, 0, 128); return HSA_STATUS_SUCCESS;
    case HSA_AGENT_INFO_VERSION_MAJOR:
    case HSA_AGENT_INFO_VERSION_MINOR: return answer<uint16_t>(value, 1);
    case HSA_AMD_AGENT_INFO_CHIP_ID: return answer<uint32_t>(value, 0x74a1);
    case HSA_AMD_AGENT_INFO_CACHELINE_SIZE: return answer<uint32_t>(value, 128);
    case HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT:
    case HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT: return answer<uint32_t>(value, gpu ? 304 : 2);
    case HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY: return answer<uint32_t>(value, 2100);
    case HSA_AMD_AGENT_INFO_MAX_ADDRESS_WATCH_POINTS: return answer<uint32_t>(value, 4);
    case HSA_AMD_AGENT_INFO_BDFID: return answer<uint32_t>(value, 0x0500 + (node << 8));
    case HSA_AMD_AGENT_INFO_DOMAIN: return answer<uint32_t>(value, 0);
    case HSA_AMD_AGENT_INFO_MEMORY_WIDTH: return answer<uint32_t>(value, 8192);
    case HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY: return answer<uint32_t>(value, 1300);
    case HSA_AMD_AGENT_INFO_MEMORY_AVAIL: return answer<uint64_t>(value, kMemoryBytes / 2);
    case HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU: return answer<uint32_t>(value, 32);
    case HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU: return answer<uint32_t>(value, 4);
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES: return answer<uint32_t>(value, 32);
    case HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE: return answer<uint32_t>(value, 1);
    case HSA_AMD_AGENT_INFO_NUM_XCC: return answer<uint32_t>(value, 1);
    case HSA_AMD_AGENT_INFO_NUM_SDMA_ENG: return answer<uint32_t>(value, 2);
    case HSA_AMD_AGENT_INFO_NUM_SDMA_XGMI_ENG: return answer<uint32_t>(value, 0);
    case HSA_AMD_AGENT_INFO_HDP_FLUSH: return answer(value, hsa_amd_hdp_flush_t{nullptr, nullptr});
    case HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES: return answer<bool>(value, true);
    case HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS: return answer<bool>(value, false);
    case HSA_AMD_AGENT_INFO_ASIC_REVISION: return answer<uint32_t>(value, 1);
    case HSA_AMD_AGENT_INFO_ASIC_FAMILY_ID: return answer<uint32_t>(value, 141);
    case HSA_AMD_AGENT_INFO_UCODE_VERSION:
    case HSA_AMD_AGENT_INFO_SDMA_UCODE_VERSION: return answer<uint32_t>(value, 1000);
    case HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY: return answer<uint64_t>(value, 100000000);
    case HSA_AMD_AGENT_INFO_IOMMU_SUPPORT: return answer<uint32_t>(value, 0);
    case HSA_AMD_AGENT_INFO_NEAREST_CPU: return answer(value, hsa_agent_t{kCpuAgent});
    case HSA_AMD_AGENT_INFO_MEMORY_PROPERTIES:
    case HSA_AMD_AGENT_INFO_AQL_EXTENSIONS: std::memset(value, 0, 8); return HSA_STATUS_SUCCESS;
    case HSA_AMD_AGENT_INFO_SCRATCH_LIMIT_MAX:
    case HSA_AMD_AGENT_INFO_SCRATCH_LIMIT_CURRENT: return answer<uint64_t>(value, uint64_t{1} << 30);
  }
  STANDIN_LOG(1, "hsa_agent_get_info: no answer to 0x%x", unsigned(what));
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

// ---- memory pools ----------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_amd_agent_iterate_memory_pools(
    hsa_agent_t agent, hsa_status_t (*visit)(hsa_amd_memory_pool_t, void*), void* data) {
  std::vector<uint64_t> pools = {kHostFine, kHostKernarg, kHostCoarse};
  if (agent.handle != kCpuAgent) {
    const uint64_t device = (agent.handle - kCpuAgent - 1) << 32;
    pools = {kDeviceCoarse | device, kDeviceFine | device, kDeviceGroup | device};
  }
  for (uint64_t pool : pools) {
    const hsa_status_t status = visit({pool}, data);
    if (status == HSA_STATUS_INFO_BREAK) return HSA_STATUS_SUCCESS;
    if (status != HSA_STATUS_SUCCESS) return status;
  }
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_memory_pool_get_info(
    hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t what, void* value) {
  const bool group = kind_of(pool) == kDeviceGroup;
  const bool host = kind_of(pool) < kDeviceCoarse;
  switch (int(what)) {
    case HSA_AMD_MEMORY_POOL_INFO_SEGMENT:
      return answer<uint32_t>(value, group ? HSA_AMD_SEGMENT_GROUP : HSA_AMD_SEGMENT_GLOBAL);
    case HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS: return answer<uint32_t>(value, flags_of(pool));
    case HSA_AMD_MEMORY_POOL_INFO_SIZE: return answer<size_t>(value, group ? 65536 : kMemoryBytes);
    case HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE: return answer<size_t>(value, kMemoryBytes);
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED: return answer<bool>(value, !group);
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE:
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT: return answer<size_t>(value, kPage);
    case HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE: return answer<size_t>(value, 2 << 20);
    case HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL: return answer<bool>(value, host);
    case HSA_AMD_MEMORY_POOL_INFO_LOCATION:
      return answer<uint32_t>(value, host ? HSA_AMD_MEMORY_POOL_LOCATION_CPU : HSA_AMD_MEMORY_POOL_LOCATION_GPU);
  }
  STANDIN_LOG(1, "hsa_amd_memory_pool_get_info: no answer to 0x%x", unsigned(what));
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

HSA_EXPORT hsa_status_t hsa_amd_agent_memory_pool_get_info(
    hsa_agent_t agent, hsa_amd_memory_pool_t pool, hsa_amd_agent_memory_pool_info_t what, void* value) {
  const hsa_agent_t owner = owner_of(pool);
  switch (int(what)) {
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS: {
      const bool always = owner.handle == agent.handle || owner.handle == kCpuAgent;
      return answer<uint32_t>(value, always ? HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT
                                            : HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT);
    }
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS: return answer<uint32_t>(value, owner.handle != agent.handle);
    case HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO: {
      hsa_amd_memory_pool_link_info_t link = {};
      link.link_type = HSA_AMD_LINK_INFO_TYPE_PCIE;
      // Without atomics over the link the runtime refuses kernels that print.
      link.atomic_support_32bit = link.atomic_support_64bit = link.coherent_support = true;
      return answer(value, link);
    }
  }
  STANDIN_LOG(1, "hsa_amd_agent_memory_pool_get_info: no answer to 0x%x", unsigned(what));
  return HSA_STATUS_ERROR_INVALID_ARGUMENT;
}

HSA_EXPORT hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t pool, size_t bytes, uint32_t, void** address) {
  bytes = (bytes + kPage - 1) / kPage * kPage;
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  remember(made, {bytes, pool, false});
  *address = made;
  STANDIN_LOG(2, "allocated %zu bytes at %p", bytes, made);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_memory_pool_free(void* address) {
  std::lock_guard lock(memory_mutex);
  const auto found = memory.find(uintptr_t(address));
  if (found == memory.end()) return HSA_STATUS_ERROR_INVALID_ALLOCATION;
  munmap(address, found->second.bytes);
  memory.erase(found);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_agents_allow_access(uint32_t, const hsa_agent_t*, const uint32_t*, const void*) {
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_memory_lock_to_pool(
    void* host, size_t bytes, hsa_agent_t*, int, hsa_amd_memory_pool_t pool, uint32_t, void** device) {
  *device = host;
  remember(host, {bytes, pool, true});
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_memory_unlock(void* host) {
  std::lock_guard lock(memory_mutex);
  const auto found = memory.find(uintptr_t(host));
  if (found != memory.end() && found->second.locked) memory.erase(found);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_memory_register(void*, size_t) { return HSA_STATUS_SUCCESS; }
HSA_EXPORT hsa_status_t hsa_memory_deregister(void*, size_t) { return HSA_STATUS_SUCCESS; }

HSA_EXPORT hsa_status_t hsa_memory_copy(void* dst, const void* src, size_t bytes) {
  std::memcpy(dst, src, bytes);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_pointer_info(
    const void* pointer, hsa_amd_pointer_info_t* info, void* (*)(size_t), uint32_t* accessible_count, hsa_agent_t** accessible) {
  hsa_amd_pointer_info_t found = {};
  found.size = info->size;
  found.type = HSA_EXT_POINTER_TYPE_UNKNOWN;
  {
    std::lock_guard lock(memory_mutex);
    auto next = memory.upper_bound(uintptr_t(pointer));
    if (next != memory.begin()) {
      const auto& [begin, block] = *--next;
      if (uintptr_t(pointer) < begin + block.bytes) {
        found.type = block.locked ? HSA_EXT_POINTER_TYPE_LOCKED : HSA_EXT_POINTER_TYPE_HSA;
        found.agentBaseAddress = found.hostBaseAddress = reinterpret_cast<void*>(begin);
        found.sizeInBytes = block.bytes;
        found.agentOwner = owner_of(block.pool);
        found.global_flags = flags_of(block.pool);
      }
    }
  }
  std::memcpy(info, &found, std::min<size_t>(info->size, sizeof found));
  if (accessible_count) *accessible_count = 0;
  if (accessible) *accessible = nullptr;
  return HSA_STATUS_SUCCESS;
}

// ---- virtual memory --------------------------------------------------------------------------------------------------
HSA_EXPORT hsa_status_t hsa_amd_vmem_address_reserve_align(
    void** address, size_t bytes, uint64_t, uint64_t alignment, uint64_t) {
  alignment = std::max<uint64_t>(alignment, kPage);
  void* made = mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  *address = reinterpret_cast<void*>((uintptr_t(made) + alignment - 1) / alignment * alignment);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_vmem_address_reserve(void** address, size_t bytes, uint64_t wish, uint64_t flags) {
  return hsa_amd_vmem_address_reserve_align(address, bytes, wish, kPage, flags);
}

// Address space without pages costs nothing, so it is kept.
HSA_EXPORT hsa_status_t hsa_amd_vmem_address_free(void*, size_t) { return HSA_STATUS_SUCCESS; }

HSA_EXPORT hsa_status_t hsa_amd_vmem_handle_create(
    hsa_amd_memory_pool_t pool, size_t bytes, hsa_amd_memory_type_t, uint64_t, hsa_amd_vmem_alloc_handle_t* handle) {
  const int file = int(syscall(SYS_memfd_create, "amd-on-cpu", 0));
  if (file < 0 || ftruncate(file, off_t(bytes)) != 0) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  handle->handle = uint64_t(new VirtualHandle{file, pool});
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_vmem_handle_release(hsa_amd_vmem_alloc_handle_t handle) {
  close(reinterpret_cast<VirtualHandle*>(handle.handle)->file);
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_vmem_map(
    void* address, size_t bytes, size_t offset, hsa_amd_vmem_alloc_handle_t handle, uint64_t) {
  auto* virtual_handle = reinterpret_cast<VirtualHandle*>(handle.handle);
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, virtual_handle->file, off_t(offset)) ==
      MAP_FAILED) {
    return HSA_STATUS_ERROR;
  }
  std::lock_guard lock(memory_mutex);
  memory[uintptr_t(address)] = {bytes, virtual_handle->pool, false};
  mapped[uintptr_t(address)] = virtual_handle;
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_vmem_unmap(void* address, size_t bytes) {
  mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  std::lock_guard lock(memory_mutex);
  memory.erase(uintptr_t(address));
  mapped.erase(uintptr_t(address));
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_vmem_set_access(void*, size_t, const hsa_amd_memory_access_desc_t*, size_t) {
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_vmem_get_access(void*, hsa_access_permission_t* permission, hsa_agent_t) {
  *permission = HSA_ACCESS_PERMISSION_RW;
  return HSA_STATUS_SUCCESS;
}

HSA_EXPORT hsa_status_t hsa_amd_vmem_retain_alloc_handle(hsa_amd_vmem_alloc_handle_t* handle, void* address) {
  std::lock_guard lock(memory_mutex);
  const auto found = mapped.find(uintptr_t(address));
  if (found == mapped.end()) return HSA_STATUS_ERROR;
  handle->handle = uint64_t(found->second);
  return HSA_STATUS_SUCCESS;
}
