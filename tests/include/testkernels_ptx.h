/*
 * The kernels of testkernels.h for a real GPU. Each waits out its time first and acts then, as the simulated ones do:
 * what is written appears as late as it may, and what is read is read as late as it may be.
 */
#ifndef TEST_KERNELS_PTX_H
#define TEST_KERNELS_PTX_H

#define TK_SPIN(ns)                                   \
    "    mov.u64 %rd10, %globaltimer;\n"              \
    "WAIT:\n"                                         \
    "    mov.u64 %rd11, %globaltimer;\n"              \
    "    sub.u64 %rd11, %rd11, %rd10;\n"              \
    "    setp.lt.u64 %p0, %rd11, " ns ";\n"           \
    "    @%p0 bra WAIT;\n"

/* A loop over the words of a block: %rd0 is the word's index, %r0 its low half, %rd1 its offset in bytes. */
#define TK_LOOP(n, body)                              \
    "    mov.u32 %r1, %ctaid.x;\n"                    \
    "    mov.u32 %r2, %ntid.x;\n"                     \
    "    mov.u32 %r3, %tid.x;\n"                      \
    "    mov.u32 %r4, %nctaid.x;\n"                   \
    "    mad.lo.u32 %r0, %r1, %r2, %r3;\n"            \
    "    cvt.u64.u32 %rd0, %r0;\n"                    \
    "    mul.wide.u32 %rd2, %r2, %r4;\n"              \
    "NEXT:\n"                                         \
    "    setp.ge.u64 %p1, %rd0, " n ";\n"             \
    "    @%p1 bra DONE;\n"                            \
    "    cvt.u32.u64 %r0, %rd0;\n"                    \
    "    shl.b64 %rd1, %rd0, 2;\n" body               \
    "    add.u64 %rd0, %rd0, %rd2;\n"                 \
    "    bra NEXT;\n"                                 \
    "DONE:\n"

#define TK_REGISTERS "    .reg .pred %p<4>;\n    .reg .b32 %r<10>;\n    .reg .b64 %rd<14>;\n"

#define TK_PTX                                                                                                        \
    ".version 7.0\n.target sm_52\n.address_size 64\n"                                                                 \
    ".visible .entry fill(.param .u64 p, .param .u64 n, .param .u32 v, .param .u64 ns)\n{\n" TK_REGISTERS             \
    "    ld.param.u64 %rd3, [p];\n    ld.param.u64 %rd4, [n];\n"                                                      \
    "    ld.param.u32 %r5, [v];\n    ld.param.u64 %rd5, [ns];\n" TK_SPIN("%rd5")                                      \
    TK_LOOP("%rd4", "    add.u64 %rd6, %rd3, %rd1;\n    add.u32 %r6, %r5, %r0;\n    st.u32 [%rd6], %r6;\n")           \
    "    ret;\n}\n"                                                                                                   \
    ".visible .entry check(.param .u64 p, .param .u64 n, .param .u32 v, .param .u64 bad, .param .u64 ns)\n{\n"        \
    TK_REGISTERS                                                                                                      \
    "    ld.param.u64 %rd3, [p];\n    ld.param.u64 %rd4, [n];\n    ld.param.u64 %rd7, [bad];\n"                       \
    "    ld.param.u32 %r5, [v];\n    ld.param.u64 %rd5, [ns];\n" TK_SPIN("%rd5")                                      \
    TK_LOOP("%rd4",                                                                                                   \
            "    add.u64 %rd6, %rd3, %rd1;\n    add.u32 %r6, %r5, %r0;\n    ld.u32 %r7, [%rd6];\n"                    \
            "    setp.ne.u32 %p2, %r6, %r7;\n    @%p2 red.add.u64 [%rd7], 1;\n")                                      \
    "    ret;\n}\n"                                                                                                   \
    ".visible .entry copy(.param .u64 dst, .param .u64 src, .param .u64 n, .param .u64 ns)\n{\n" TK_REGISTERS         \
    "    ld.param.u64 %rd3, [dst];\n    ld.param.u64 %rd8, [src];\n"                                                  \
    "    ld.param.u64 %rd4, [n];\n    ld.param.u64 %rd5, [ns];\n" TK_SPIN("%rd5")                                     \
    TK_LOOP("%rd4",                                                                                                   \
            "    add.u64 %rd6, %rd8, %rd1;\n    ld.u32 %r7, [%rd6];\n"                                                \
            "    add.u64 %rd6, %rd3, %rd1;\n    st.u32 [%rd6], %r7;\n")                                               \
    "    ret;\n}\n"                                                                                                   \
    ".visible .entry add1(.param .u64 p, .param .u64 n, .param .u64 ns)\n{\n" TK_REGISTERS                            \
    "    ld.param.u64 %rd3, [p];\n    ld.param.u64 %rd4, [n];\n    ld.param.u64 %rd5, [ns];\n" TK_SPIN("%rd5")        \
    TK_LOOP("%rd4",                                                                                                   \
            "    add.u64 %rd6, %rd3, %rd1;\n    ld.u32 %r7, [%rd6];\n    add.u32 %r7, %r7, 1;\n"                      \
            "    st.u32 [%rd6], %r7;\n")                                                                              \
    "    ret;\n}\n"                                                                                                   \
    ".visible .entry spin(.param .u64 ns)\n{\n" TK_REGISTERS "    ld.param.u64 %rd5, [ns];\n" TK_SPIN("%rd5")         \
    "    ret;\n}\n"

#endif
