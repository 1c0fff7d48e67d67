;; Which idle runners go first: the youngest, because the caches of the old ones are warm.
;;
;; pacer policy componentize policy.wat -o newest-first.wasm
;;
;; The host writes the request into this memory through cabi_realloc and calls select with its address. Offsets in bytes:
;;
;;   request    now 0 (f64)   settings 8   pool 16   nodes 188   candidates 196   surplus 204   attributes 208
;;   candidate  name 0   idle 8   age 12   node 16 (20)   current 24   last-job-end 28 (32)   attributes 36            44 bytes each
;;   choice     index 0   reason 4   attributes 12                                                                    20 bytes each
;;   answer     0: 0 for ok, 1 for err   4: address of the choices or of the error text   8: how many, or its length
;;
;; A text or list is an address and a length; an option is a byte 0 or 1 and, 4 bytes on, its value. See wit/policy/v0.1.0/policy.wit.
(module
  (memory (export "memory") 1)
  (global $next (mut i32) (i32.const 4096))

  ;; Every call gets a fresh instance, so nothing is ever given back.
  (func $allocate (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32) (local $missing i32)
    (local.set $at (i32.and
      (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get $align))))
    (global.set $next (i32.add (local.get $at) (local.get $size)))
    (local.set $missing (i32.sub (global.get $next) (i32.shl (memory.size) (i32.const 16))))
    (if (i32.gt_s (local.get $missing) (i32.const 0)) (then
      (if (i32.lt_s (memory.grow (i32.add (i32.shr_u (local.get $missing) (i32.const 16)) (i32.const 1))) (i32.const 0))
        (then unreachable))))
    (local.get $at))

  (func (export "pacer:policy/lifecycle@0.1.0#describe") (result i32) (i32.const 1024))
  ;; Any settings will do.
  (func (export "pacer:policy/lifecycle@0.1.0#validate-settings") (param i32 i32) (result i32) (i32.const 2048))

  (func (export "pacer:policy/scale-down@0.1.0#select") (param $request i32) (result i32)
    (local $candidates i32) (local $count i32) (local $wanted i32) (local $taken i32)
    (local $chosen i32) (local $choice i32) (local $best i32) (local $i i32) (local $reason i32) (local $len i32)
    (local.set $candidates (i32.load offset=196 (local.get $request)))
    (local.set $count (i32.load offset=200 (local.get $request)))
    (local.set $wanted (i32.load offset=204 (local.get $request)))
    (if (i32.gt_u (local.get $wanted) (local.get $count)) (then (local.set $wanted (local.get $count))))
    ;; One byte per candidate: whether it is chosen already. Fresh memory is zero.
    (local.set $chosen (call $allocate (i32.const 0) (i32.const 0) (i32.const 1) (local.get $count)))
    (local.set $choice (call $allocate (i32.const 0) (i32.const 0) (i32.const 4) (i32.mul (local.get $wanted) (i32.const 20))))
    (i32.store (i32.const 2064) (i32.const 0))
    (i32.store (i32.const 2068) (local.get $choice))
    (i32.store (i32.const 2072) (local.get $wanted))
    (block $done (loop $more
      (br_if $done (i32.eq (local.get $taken) (local.get $wanted)))
      (local.set $best (i32.const -1))
      (local.set $i (i32.const 0))
      (block $seen (loop $look
        (br_if $seen (i32.eq (local.get $i) (local.get $count)))
        (if (i32.eqz (i32.load8_u (i32.add (local.get $chosen) (local.get $i)))) (then
          (if (call $goes_before (local.get $candidates) (local.get $i) (local.get $best))
            (then (local.set $best (local.get $i))))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $look)))
      (i32.store8 (i32.add (local.get $chosen) (local.get $best)) (i32.const 1))
      (call $explain (i32.load offset=12 (i32.add (local.get $candidates) (i32.mul (local.get $best) (i32.const 44)))))
      (local.set $len)
      (local.set $reason)
      (i32.store (local.get $choice) (local.get $best))
      (i32.store offset=4 (local.get $choice) (local.get $reason))
      (i32.store offset=8 (local.get $choice) (local.get $len))
      (local.set $choice (i32.add (local.get $choice) (i32.const 20)))
      (local.set $taken (i32.add (local.get $taken) (i32.const 1)))
      (br $more)))
    (i32.const 2064))

  ;; Whether candidate $one goes before candidate $other, which may be -1 for none: it is younger, or as young and its name is smaller.
  (func $goes_before (param $candidates i32) (param $one i32) (param $other i32) (result i32)
    (local $i i32) (local $a i32) (local $b i32)
    (if (i32.lt_s (local.get $other) (i32.const 0)) (then (return (i32.const 1))))
    (local.set $one (i32.add (local.get $candidates) (i32.mul (local.get $one) (i32.const 44))))
    (local.set $other (i32.add (local.get $candidates) (i32.mul (local.get $other) (i32.const 44))))
    (local.set $a (i32.load offset=12 (local.get $one)))
    (local.set $b (i32.load offset=12 (local.get $other)))
    (if (i32.ne (local.get $a) (local.get $b)) (then (return (i32.lt_u (local.get $a) (local.get $b)))))
    (loop $letter
      (if (i32.eq (local.get $i) (i32.load offset=4 (local.get $other))) (then (return (i32.const 0))))
      (if (i32.eq (local.get $i) (i32.load offset=4 (local.get $one))) (then (return (i32.const 1))))
      (local.set $a (i32.load8_u (i32.add (i32.load (local.get $one)) (local.get $i))))
      (local.set $b (i32.load8_u (i32.add (i32.load (local.get $other)) (local.get $i))))
      (if (i32.ne (local.get $a) (local.get $b)) (then (return (i32.lt_u (local.get $a) (local.get $b)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $letter))
    unreachable)

  ;; The text "123 s old": address and length.
  (func $explain (param $age i32) (result i32 i32)
    (local $end i32) (local $at i32)
    ;; Ten digits and what follows them.
    (local.set $at (i32.add (call $allocate (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)) (i32.const 10)))
    (local.set $end (i32.add (local.get $at) (i32.const 6)))
    (i64.store align=1 (i32.sub (local.get $at) (i32.const 2)) (i64.load align=1 (i32.const 2078)))
    (loop $digit
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $age) (i32.const 10))))
      (local.set $age (i32.div_u (local.get $age) (i32.const 10)))
      (br_if $digit (local.get $age)))
    (local.get $at)
    (i32.sub (local.get $end) (local.get $at)))

  ;; describe: name, version, summary, no schema of settings, no attributes.
  (data (i32.const 1024)
    "\3c\04\00\00\0c\00\00\00"
    "\48\04\00\00\05\00\00\00"
    "\4d\04\00\00\3d\00\00\00"
    "\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
  (data (i32.const 1084) "newest-first" "0.1.0" "Removes the youngest runners and keeps those with warm caches")
  (data (i32.const 2080) " s old"))
