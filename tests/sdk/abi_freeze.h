/* The plugin contract as numbers, so that no field moves by accident. A field may be appended, in a new minor; every other
 * difference is a new major. What includes it is compiled for each minor that an author may choose (GANNET_TARGET_MINOR), as C99
 * with -pedantic and as C++; it has no code. */
#ifndef ABI_FREEZE_H
#define ABI_FREEZE_H

#include <gannet/abi.h>
#include <stddef.h>

/* A negative array size is how C99 says static_assert. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define FROZEN(condition) typedef char JOIN(frozen_on_line_, __LINE__)[(condition) ? 1 : -1];
#define SIZE(type, bytes) FROZEN(sizeof(type) == (bytes))
#define FIELD(type, field, offset, bytes) FROZEN(offsetof(type, field) == (offset) && sizeof(((type*)0)->field) == (bytes))
#if GANNET_TARGET_MINOR >= 1
#define SINCE_1(type, field, offset, bytes) FIELD(type, field, offset, bytes)
#else
#define SINCE_1(type, field, offset, bytes)
#endif
#if GANNET_TARGET_MINOR >= 2
#define SINCE_2(type, field, offset, bytes) FIELD(type, field, offset, bytes)
#else
#define SINCE_2(type, field, offset, bytes)
#endif
#if GANNET_TARGET_MINOR >= 3
#define SINCE_3(type, field, offset, bytes) FIELD(type, field, offset, bytes)
#else
#define SINCE_3(type, field, offset, bytes)
#endif
#if GANNET_TARGET_MINOR >= 4
#define SINCE_4(type, field, offset, bytes) FIELD(type, field, offset, bytes)
#else
#define SINCE_4(type, field, offset, bytes)
#endif
/* The size in each minor. SIZES is for the structs that 2.1 was the last to change. */
#if GANNET_TARGET_MINOR == 0
#define SIZES_OF_ALL(type, bytes_2_0, bytes_2_1, bytes_2_2, bytes_2_3, bytes_2_4) SIZE(type, bytes_2_0)
#elif GANNET_TARGET_MINOR == 1
#define SIZES_OF_ALL(type, bytes_2_0, bytes_2_1, bytes_2_2, bytes_2_3, bytes_2_4) SIZE(type, bytes_2_1)
#elif GANNET_TARGET_MINOR == 2
#define SIZES_OF_ALL(type, bytes_2_0, bytes_2_1, bytes_2_2, bytes_2_3, bytes_2_4) SIZE(type, bytes_2_2)
#elif GANNET_TARGET_MINOR == 3
#define SIZES_OF_ALL(type, bytes_2_0, bytes_2_1, bytes_2_2, bytes_2_3, bytes_2_4) SIZE(type, bytes_2_3)
#else
#define SIZES_OF_ALL(type, bytes_2_0, bytes_2_1, bytes_2_2, bytes_2_3, bytes_2_4) SIZE(type, bytes_2_4)
#endif
#define SIZES(type, bytes_2_0, bytes_2_1) SIZES_OF_ALL(type, bytes_2_0, bytes_2_1, bytes_2_1, bytes_2_1, bytes_2_1)
#define CODE(name, number) FROZEN((name) == (number))

#endif
