/* Fixed-width types for argument structs, which host and device share. NVRTC has no <stdint.h>. */
#ifndef KERNELS_TYPES_H
#define KERNELS_TYPES_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#ifdef __cplusplus
#define SOL_STATIC_ASSERT static_assert
#else
#define SOL_STATIC_ASSERT _Static_assert
#endif

/* For functions that host and device share. */
#ifdef __CUDACC__
#define SOL_DEVICE __host__ __device__
#else
#define SOL_DEVICE
#endif

#endif
