/* A plugin of llama.cpp that offers a GPU which is none, for tests of what is said when a GPU
 * cannot be used. What it does is said in the variable FAKE_GPU:
 *
 *   no-code      a GPU for which the plugin has no code: the process ends when something is to be computed on it
 *   no-device    a driver that finds no GPU
 *   otherwise    a library that is not a plugin of this release
 *
 * The structures are those of a plugin of llama.cpp v0.5.0, of which only what is asked for here is
 * filled. */
#include <ggml-backend.h>
#include <stdlib.h>
#include <string.h>

#define API_VERSION 2

/* Exported by llama.cpp for its plugins. */
void ggml_log_internal(enum ggml_log_level level, const char* format, ...);

struct ggml_backend_reg {
  int api_version;
  const char* (*get_name)(ggml_backend_reg_t reg);
  size_t (*get_device_count)(ggml_backend_reg_t reg);
  ggml_backend_dev_t (*get_device)(ggml_backend_reg_t reg, size_t index);
  void* (*get_proc_address)(ggml_backend_reg_t reg, const char* name);
  void* context;
};

struct ggml_backend_device {
  const char* (*get_name)(ggml_backend_dev_t device);
  const char* (*get_description)(ggml_backend_dev_t device);
  void (*get_memory)(ggml_backend_dev_t device, size_t* free_bytes, size_t* total_bytes);
  enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t device);
  void (*get_props)(ggml_backend_dev_t device, struct ggml_backend_dev_props* props);
  ggml_backend_t (*init_backend)(ggml_backend_dev_t device, const char* params);
  void* others[9];
  ggml_backend_reg_t reg;
  void* context;
};

static int is(const char* what) {
  const char* kind = getenv("FAKE_GPU");
  return kind != NULL && strcmp(kind, what) == 0;
}

static struct ggml_backend_reg the_plugin;
static struct ggml_backend_device the_gpu;

static const char* gpu_name(ggml_backend_dev_t device) {
  (void)device;
  return "CUDA0";
}
static const char* gpu_description(ggml_backend_dev_t device) {
  (void)device;
  return "Fake GPU";
}
static void gpu_memory(ggml_backend_dev_t device, size_t* free_bytes, size_t* total_bytes) {
  (void)device;
  *free_bytes = (size_t)3 << 30;
  *total_bytes = (size_t)4 << 30;
}
static enum ggml_backend_dev_type gpu_type(ggml_backend_dev_t device) {
  (void)device;
  return GGML_BACKEND_DEVICE_TYPE_GPU;
}
static void gpu_props(ggml_backend_dev_t device, struct ggml_backend_dev_props* props) {
  memset(props, 0, sizeof *props);
  props->name = gpu_name(device);
  props->description = gpu_description(device);
  props->type = gpu_type(device);
  gpu_memory(device, &props->memory_free, &props->memory_total);
}
/* As the CUDA plugin ends where it has no code for a GPU. */
static ggml_backend_t gpu_init(ggml_backend_dev_t device, const char* params) {
  (void)device;
  (void)params;
  ggml_log_internal(GGML_LOG_LEVEL_ERROR,
                    "CUDA error: no kernel image is available for execution on the device\n");
  abort();
}

static const char* plugin_name(ggml_backend_reg_t reg) {
  (void)reg;
  return "CUDA";
}
static size_t device_count(ggml_backend_reg_t reg) {
  (void)reg;
  return is("no-code") ? 1 : 0;
}
static ggml_backend_dev_t device_at(ggml_backend_reg_t reg, size_t index) {
  (void)reg;
  (void)index;
  return &the_gpu;
}
static void* proc_address(ggml_backend_reg_t reg, const char* name) {
  (void)reg;
  (void)name;
  return NULL;
}

ggml_backend_reg_t ggml_backend_init(void) {
  if (!is("no-code") && !is("no-device")) return NULL;
  if (is("no-device")) {
    ggml_log_internal(
        GGML_LOG_LEVEL_ERROR,
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n");
  }
  the_gpu.get_name = gpu_name;
  the_gpu.get_description = gpu_description;
  the_gpu.get_memory = gpu_memory;
  the_gpu.get_type = gpu_type;
  the_gpu.get_props = gpu_props;
  the_gpu.init_backend = gpu_init;
  the_gpu.reg = &the_plugin;
  the_plugin.api_version = API_VERSION;
  the_plugin.get_name = plugin_name;
  the_plugin.get_device_count = device_count;
  the_plugin.get_device = device_at;
  the_plugin.get_proc_address = proc_address;
  return &the_plugin;
}
