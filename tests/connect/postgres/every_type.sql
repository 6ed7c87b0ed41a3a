create extension if not exists hstore; create extension if not exists citext; create extension if not exists ltree;
create type mood as enum ('sad','ok','happy');
create domain posint as int check (value > 0);
create domain price as numeric(8,3);
create table every (
 id serial primary key,
 b bool not null default true, s int2 default 7, i int4 not null default 42, l int8, r float4, d float8 default 1.5,
 n numeric, n52 numeric(5,2) not null default 1.25, n10 numeric(10), t text default 'a''b', v varchar(20) not null default 'x', c char(5), nm name, chr "char",
 by bytea, js json, jb jsonb, x xml, u uuid,
 da date, da2 date not null default '2020-02-03', ti time, ti3 time(3), tiz timetz, ts timestamp, ts3 timestamp(3), ts0 timestamp(0), tsz timestamptz, tsz3 timestamptz(3), tsn timestamptz not null default now(), iv interval,
 bi bit, bi5 bit(5), vb varbit(9), vbu varbit, m money, o oid, ip inet, ci cidr, ma macaddr, ma8 macaddr8,
 pt point, ln line, ls lseg, bx box, pa path, po polygon, cr circle,
 i4r int4range, i8r int8range, nr numrange, tsr tsrange, tszr tstzrange, dr daterange, i4m int4multirange,
 mo mood not null default 'ok', dom posint, pr price, hs hstore, ct citext, lt ltree, tv tsvector, tq tsquery,
 ai int4[], at text[], an numeric(6,2)[], ad date[], ats timestamp[], atz timestamptz[], au uuid[], ab bool[], aj jsonb[], amo mood[], ahs hstore[], act citext[], aip inet[], ai8 int8[], af float8[], avc varchar(5)[], aby bytea[], ati time[], am money[], aiv interval[], ai2 int4[][],
 pglsn pg_lsn, jp jsonpath, rc regclass
);
insert into every(b,s,i,l,r,d,n,n52,n10,t,v,c,nm,chr,by,js,jb,x,u,da,ti,ti3,tiz,ts,ts3,ts0,tsz,tsz3,iv,bi,bi5,vb,vbu,m,o,ip,ci,ma,ma8,pt,ln,ls,bx,pa,po,cr,i4r,i8r,nr,tsr,tszr,dr,i4m,mo,dom,pr,hs,ct,lt,tv,tq,ai,at,an,ad,ats,atz,au,ab,aj,amo,ahs,act,aip,ai8,af,avc,aby,ati,am,aiv,ai2,pglsn,jp,rc)
values (true,1,2,3,1.5,0.1,123.4500,1.5,99,'héllo	tab\n"q"','v','ab','nam','z','\x00ff10','{"a": 1}','{"b":[1,2]}','<a>1</a>','11111111-2222-3333-4444-555555555555','2021-03-04','12:34:56.789','12:34:56.789','12:34:56.5+02','2021-03-04 05:06:07.123456','2021-03-04 05:06:07.123','2021-03-04 05:06:07','2021-03-04 05:06:07.120000+01','2021-03-04 05:06:07.1+01','1 year 2 mons 3 days 04:05:06.789','1','10101','101','1',12.34,77,'10.0.0.1/8','10.0.0.0/8','08:00:2b:01:02:03','08:00:2b:01:02:03:04:05',
'(1.5,2)','{1,2,3}','[(0,0),(1,1)]','(1,1),(0,0)','[(0,0),(1,1),(2,0)]','((0,0),(1,1),(2,0))','<(1,2),3>',
'[1,5)','[1,5)','[1.5,2.5]','["2021-01-01 00:00:00","2021-02-01 00:00:00")','["2021-01-01 00:00:00+00","2021-02-01 00:00:00+00")','[2021-01-01,2021-02-01)','{[1,3),[5,7)}',
'happy',5,12.5,'a=>1,b=>NULL,"c d"=>"x\"y"','CiText','Top.Sci','a fat cat','fat & rat','{1,NULL,3}','{"a b",NULL,"c,d","e\"f"}','{1.5,2.25}','{2021-01-01,NULL}','{"2021-03-04 05:06:07.123456"}','{"2021-03-04 05:06:07+00"}','{11111111-2222-3333-4444-555555555555}','{t,f}','{"{\"a\": 1}"}','{sad,happy}',array['a=>1'::hstore],'{A,b}','{10.0.0.1}','{1,2}','{1.5,NaN}','{ab,c}',array['\x01'::bytea],'{12:00:00}','{1.5}','{1 day}','{{1,2},{3,4}}','0/16B3748','$.a','pg_class');
insert into every(n,n52,r,d,da,ts,tsz,da2,iv,ti,tiz,bi5) values ('NaN',0,'Infinity','-Infinity','infinity','infinity','-infinity','0044-03-15 BC','-1 mons +2 days -00:00:01.5','24:00:00','00:00:00+00','00000');
insert into every(n,d,da,ts,tsz,n10,r,m) values (1e20,1e300,'12345-01-01','0044-03-15 01:02:03 BC','12345-01-01 00:00:00+00',-5,3.4e38,-1234567.89);
create table nokey (a int, b text);
insert into nokey values (1,'x');
create table "Odd Name" ("Weird Col" int primary key, "ü-x" text);
insert into "Odd Name" values (1,'o');
create table parted (id int, k int, primary key (id,k)) partition by range (k);
create table parted_a partition of parted for values from (0) to (10);
create table parted_b partition of parted for values from (10) to (20);
insert into parted values (1,1),(2,12);
create table gen (id int primary key, a int, b int generated always as (a*2) stored);
insert into gen values (1,5);
create table fullid (id int primary key, a text, big text); alter table fullid replica identity full;
insert into fullid values (1,'a', repeat('x',20));
create table toast (id int primary key, a int, big text, bigb bytea, biga text[]); alter table toast alter big set storage external; alter table toast alter bigb set storage external; alter table toast alter biga set storage external;
insert into toast values (1,1,repeat('x',10000), decode(repeat('00ff',5000),'hex'), array[repeat('y',5000)]);
