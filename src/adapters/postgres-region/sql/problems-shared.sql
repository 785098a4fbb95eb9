select to_regclass('homeregion.writer_region') is not null as present,
       exists (
         select from pg_trigger x join pg_class c on c.oid = x.tgrelid join pg_namespace n on n.oid = c.relnamespace
         join pg_proc p on p.oid = x.tgfoid join pg_namespace f on f.oid = p.pronamespace
         where n.nspname = 'homeregion_control' and c.relname = 'ownership' and x.tgname = 'zzz_homeregion_authority'
           and x.tgenabled = 'A' and x.tgqual is null and x.tgattr::text = '' and x.tgtype = 21
           and p.proname = 'follow_authority' and f.nspname = 'homeregion'
       ) as tied
